"""Flipped bits, between two workers' engines and the compiled program, and what becomes of the sum.

python tests/rigs/bit_flips.py                      100,000 collectives with a flipped bit each, from one seed
python tests/rigs/bit_flips.py --bits 2 --in blocks two bits each, in the blocks of one frame

Each collective of two ranks sums a tensor of full frames: an opening round and a round with blocks. In one frame of it,
up (as it comes from the rank's host, headers and all) or down (the UDP payload), bits are turned over.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from p4reduce.codecs import Int32
from p4reduce.errors import CollectiveError, CollectiveTimeout, CorruptSum
from p4reduce.protocol.call import Call, CodecId, Kind
from p4reduce.protocol.collective import AnyCollective, make_collective
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire import BASE_BYTES, ENCAP_BYTES, GUARD_BYTES
from rigs.pipeline import JOB, SLOT_COUNT, PipelineRig, rank_mac, rank_port, rank_udp_port, udp_frame
from rigs.secret import rank_secret

RANKS: Final = 2
TIMEOUT_S: Final = 100.0
STEPS: Final = 60
"""Far more turns of sending and repeating than a collective needs: one with more will meet its deadline."""

RIGHT, CORRUPT_SUM, OTHER_ERROR, WRONG = OUTCOMES = "right", "CorruptSum", "other error", "WRONG"


def places(size: int, up: bool) -> dict[str, range]:
    """The bytes of each part of a frame of `size` bytes, from the front of its UDP payload."""
    guard, keys = BASE_BYTES, BASE_BYTES + GUARD_BYTES
    blocks = keys + 4 * 4
    found = {
        "base": range(guard),
        "secret": range(guard, guard + 8),
        "check": range(guard + 8, guard + 12),
        "checksum": range(guard + 12, keys),
        "keys": range(keys, blocks),
        "blocks": range(blocks, size),
    }
    if up:
        found["Ethernet, IPv4, UDP"] = range(-ENCAP_BYTES, 0)
    return {name: place for name, place in found.items() if len(place)}


class BitFlips:
    """`run(n)` makes n collectives and counts (direction, part of the frame, outcome) in `outcomes`."""

    def __init__(self, seed: int, bits: int = 1, only: str = "") -> None:
        self.outcomes: Counter[tuple[str, str, str]] = Counter()
        self._random = random.Random(seed)
        self._numbers = np.random.default_rng(seed)
        self._bits, self._only = bits, only
        self._rig = PipelineRig("small", RANKS)
        self._epoch = 0
        self._renew()
        self._flip_at = -1  # none of the frames
        self._flipped = ("", "")
        assert self._collective() == RIGHT
        self._messages = self._seen  # of an undisturbed collective, in both directions

    def run(self, collectives: int) -> None:
        for _ in range(collectives):
            self._flip_at, self._flipped = self._random.randrange(self._messages), ("", "")
            outcome = self._collective()
            if self._flipped[0]:  # with `only`, the chosen frame may have no such part
                self.outcomes[*self._flipped, outcome] += 1
            if outcome != RIGHT:
                self._renew()  # the job ends; the next is another epoch

    def _renew(self) -> None:
        self._epoch = self._epoch % 65535 + 1
        admit = self._rig.program.tables["MainIngress.admission.admit"]
        for entry in list(admit.entries()):
            admit.delete(entry.match, entry.priority)
        for rank in range(RANKS):
            self._rig.admit(rank, self._epoch)
        self._rounds = [[0] * SLOT_COUNT for _ in range(RANKS)]

    def _collective(self) -> str:
        geometry = self._rig.geometry
        tensors = self._numbers.integers(-(2**31), 2**31, (RANKS, geometry.frame_words)).astype(np.int32)
        call = Call(0, Kind.ALL_REDUCE, CodecId.INT32, 0, geometry.frame_words)
        engines = []
        for rank in range(RANKS):
            lease = Lease(
                JOB,
                "flips",
                self._epoch,
                rank,
                RANKS,
                SLOT_COUNT,
                geometry.columns,
                geometry.block_words,
                secret=rank_secret(rank),
            )
            source = Int32(tensors[rank]).bind(RANKS, geometry.block_words, True)
            engines.append(make_collective(lease, self._rounds[rank], source, call, TIMEOUT_S))
        self._seen = 0
        try:
            self._to_the_end(engines)
        except CorruptSum:
            return CORRUPT_SUM
        except CollectiveError:
            return OTHER_ERROR
        expected = np.sum(tensors, axis=0, dtype=np.int32)
        return RIGHT if all(np.array_equal(engine.result()[0], expected) for engine in engines) else WRONG

    def _to_the_end(self, engines: Sequence[AnyCollective]) -> None:
        """Pass frames until every rank is done, or one has an error."""
        now = 0.0
        flying = [(rank, frame) for rank, engine in enumerate(engines) for frame in engine.start(now)]
        for _ in range(STEPS):
            while flying:
                rank, payload = flying.pop(0)
                for to, answer in self._through_switch(rank, payload):
                    flying += [(to, more) for more in engines[to].receive(answer, now)]
            timers = [engine.next_timer for engine in engines]
            due = [timer for timer in timers if timer is not None]
            if not due:
                return
            now = min(due)
            flying = [(rank, frame) for rank, engine in enumerate(engines) for frame in engine.on_timer(now)]
        raise CollectiveTimeout(f"no end after {STEPS} turns; flipped: {self._flipped}")

    def _through_switch(self, rank: int, payload: bytes) -> list[tuple[int, bytes]]:
        frame = self._disturb(udp_frame(rank, payload), ENCAP_BYTES, up=True)
        answers = []
        for port, out in self._rig.program.process(rank_port(rank), frame):
            to = port - rank_port(0)
            address = rank_mac(to).to_bytes(6, "big"), rank_udp_port(to).to_bytes(2, "big")
            if (out[:6], out[36:38]) == address:  # else another host's, or nobody's
                answers.append((to, self._disturb(out[ENCAP_BYTES:], 0, up=False)))
        return answers

    def _disturb(self, frame: bytes, payload_at: int, *, up: bool) -> bytes:
        """The frame; if it is the chosen one, with bits turned over in one of its parts."""
        self._seen += 1
        if self._seen - 1 != self._flip_at:
            return frame
        parts = places(len(frame) - payload_at, up)
        if self._only:
            parts = {name: place for name, place in parts.items() if name == self._only}
        if not parts:
            return frame
        name = self._random.choice(sorted(parts))
        place = parts[name]
        changed = bytearray(frame)
        for bit in self._random.sample(range(8 * len(place)), self._bits):
            changed[payload_at + place[bit // 8]] ^= 1 << bit % 8
        self._flipped = ("up" if up else "down", name)
        return bytes(changed)


def main() -> int:
    parser = argparse.ArgumentParser(description="Flip bits of frames, and count what becomes of the sums.")
    parser.add_argument("--flips", type=int, default=100_000, help="collectives to disturb (default: 100000)")
    parser.add_argument("--bits", type=int, default=1, help="bits to turn over in one part of one frame (default: 1)")
    parser.add_argument("--in", dest="only", default="", help="only in this part: base, secret, check, keys, blocks")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    flips = BitFlips(options.seed, options.bits, options.only)
    flips.run(options.flips)
    rows = sorted({key[:2] for key in flips.outcomes})
    print(" " * 28 + "".join(f"{outcome:>13}" for outcome in OUTCOMES))
    for direction, part in rows:
        counts = "".join(f"{flips.outcomes[direction, part, outcome]:13}" for outcome in OUTCOMES)
        print(f"{direction:5} {part:22}{counts}")
    wrong = sum(count for key, count in flips.outcomes.items() if key[2] == WRONG)
    print(f"{flips.outcomes.total()} disturbed frames, {wrong} wrong sums handed out")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
