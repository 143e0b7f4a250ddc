"""Flipped bits, between two workers' engines and the compiled program, and what becomes of the sum.

python tests/rigs/bit_flips.py                      100,000 collectives with a flipped bit each, from one seed
python tests/rigs/bit_flips.py --bits 2             two bits each, in one part of a frame
python tests/rigs/bit_flips.py --same 31 --of float32
                                                    bit 31 of two words of one frame, in collectives of float32
python tests/rigs/bit_flips.py --tree 2x2           over a tree of switches, also on the links between them

Each collective sums a tensor of full frames: an opening round and a round with blocks. In one frame of it, up (as it
comes from the rank's host, headers and all), up or down between two switches (all of it too) or down (the UDP payload),
bits are turned over.
"""

from __future__ import annotations

import argparse
import random
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

if __name__ == "__main__":
    sys.path.extend(str(Path(__file__).resolve().parents[2] / tests) for tests in ("tests", "softswitch/tests"))

from p4reduce.codecs import Floats, Gathered, Int32, Lanes, Segment
from p4reduce.errors import CollectiveError, CollectiveTimeoutError, CorruptSumError
from p4reduce.protocol.call import Call
from p4reduce.protocol.collective import Collective
from p4reduce.protocol.initial_state import Records
from p4reduce_contracts.jobs.lease import Lease, LeasedSwitch
from p4reduce_contracts.wire.calls import Kind
from p4reduce_contracts.wire.numbers import BASE_BYTES, GUARD_BYTES
from p4reduce_runtime.underlay import ENCAP_BYTES
from rigs.float_sums import summed_words
from rigs.pipeline import JOB, SLOT_COUNT, is_for
from rigs.secret import rank_secret
from rigs.tree import TREES, Place, Shape, TreeRig

ONE_SWITCH: Final[Shape] = [0, 1]
TIMEOUT_S: Final = 100.0
STEPS: Final = 60
"""Far more turns of sending and repeating than a collective needs: one with more will meet its deadline."""

Make = Callable[[np.random.Generator, int, int], Segment]
FORMATS: Final[dict[str, Make]] = {
    "int32": lambda rng, words, _: Int32(rng.integers(-(2**31), 2**31, words).astype(np.int32)),
    "float32": lambda rng, words, _: Floats(rng.standard_normal(words).astype(np.float32)),
    "lanes4": lambda rng, words, _: Lanes(rng.integers(-1, 2, 8 * words), 4, bound=1),
    "lanes8": lambda rng, words, _: Lanes(rng.integers(-1, 2, 4 * words), 8, bound=1),
    "floats8": lambda rng, words, _: Floats(rng.standard_normal(4 * words).astype(np.float32), 8),
    "floats16": lambda rng, words, _: Floats(rng.standard_normal(2 * words).astype(np.float32), 16),
    "bytes": lambda rng, words, rank: Gathered(rng.integers(1, 256, 2 * words).astype(np.uint8), 2 * words, rank),
}
"""The formats. Each makes a rank's part of a sum from random numbers, the number of words of the sum, and the rank."""

RIGHT, CORRUPT_SUM, OTHER_ERROR, WRONG = OUTCOMES = "right", "CorruptSumError", "other error", "WRONG"


def places(size: int, headers: bool) -> dict[str, range]:
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
    if headers:
        found["Ethernet, IPv4, UDP"] = range(-ENCAP_BYTES, 0)
    return {name: place for name, place in found.items() if len(place)}


class BitFlips:
    """`run(n)` makes n collectives and counts (direction, part of the frame, outcome) in `outcomes`.

    `bits` random bits are flipped in one part of a frame. Or, with `same_bit`, that bit of two random words of a full
    frame.
    """

    def __init__(
        self, seed: int, bits: int = 1, *, of: str = "int32", same_bit: int | None = None, shape: Shape = ONE_SWITCH
    ) -> None:
        self.outcomes: Counter[tuple[str, str, str]] = Counter()
        self._random = random.Random(seed)
        self._numbers = np.random.default_rng(seed)
        self._bits = bits
        self._make, self._same_bit = FORMATS[of], same_bit
        self._tree = TreeRig("small", shape)
        self._ranks = range(self._tree.world_size)
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
            if self._flipped[0]:  # with `same_bit`, the chosen frame may have no blocks
                self.outcomes[*self._flipped, outcome] += 1
            if outcome != RIGHT:
                self._renew()  # the job ends; the next is another epoch

    def _renew(self) -> None:
        self._epoch = self._epoch % 65535 + 1
        self._tree.renew(self._epoch)
        self._rounds = [array("q", [0]) * SLOT_COUNT for _ in self._ranks]

    def _collective(self) -> str:
        geometry, ranks = self._tree.geometry, self._tree.world_size
        segments = [self._make(self._numbers, geometry.frame_words, rank) for rank in self._ranks]
        call = Call(0, Kind.ALL_REDUCE, segments[0].codec, segments[0].detail, segments[0].elements, segments[0].layout)
        engines, sources = [], []
        for rank in self._ranks:
            lease = Lease(
                JOB,
                "flips",
                self._epoch,
                rank,
                ranks,
                SLOT_COUNT,
                geometry.columns,
                geometry.block_words,
                switches=(LeasedSwitch(secret=rank_secret(rank), levels=self._tree.levels(rank)),),
            )
            sources.append(segments[rank].bind(ranks, geometry.block_words, True))
            records = Records(lease, sources[rank].n_blocks, self._rounds[rank])
            engines.append(Collective(records, sources[rank], call, TIMEOUT_S))
        self._seen = 0
        try:
            self._to_the_end(engines)
        except CorruptSumError:
            return CORRUPT_SUM
        except CollectiveError:
            return OTHER_ERROR
        words, exponents = summed_words(sources, geometry.block_words)
        expected = [source.decode(words, exponents)[0] for source in sources]
        got = [engine.result()[0] for engine in engines]
        return RIGHT if all(np.array_equal(*pair) for pair in zip(got, expected, strict=True)) else WRONG

    def _to_the_end(self, engines: Sequence[Collective]) -> None:
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
        raise CollectiveTimeoutError(f"no end after {STEPS} turns; flipped: {self._flipped}")

    def _through_switch(self, rank: int, payload: bytes) -> list[tuple[int, bytes]]:
        place, frame = self._tree.framed(rank, payload)
        arriving = [(place, self._disturb(frame, ENCAP_BYTES, "up"))]
        answers = []
        while arriving:
            place, frame = arriving.pop(0)
            for to, out in self._tree.arrive(place, frame):
                if to.rank < 0:
                    arriving.append((to, self._disturb(out, ENCAP_BYTES, self._between(place, to))))
                    continue
                if is_for(to.rank, out):  # else another host's, or no host's
                    answers.append((to.rank, self._disturb(out[ENCAP_BYTES:], 0, "down")))
        return answers

    def _between(self, place: Place, to: Place) -> str:
        return "trunk up" if self._tree.parents[place.switch] == to.switch else "trunk down"

    def _disturb(self, frame: bytes, payload_at: int, direction: str) -> bytes:
        """The frame; if it is the chosen one, with bits turned over in one of its parts."""
        self._seen += 1
        if self._seen - 1 != self._flip_at:
            return frame
        parts = places(len(frame) - payload_at, payload_at > 0)
        if self._same_bit is not None:
            parts = {name: place for name, place in parts.items() if name == "blocks"}
        if not parts or self._same_bit is not None and len(frame) - payload_at < self._tree.geometry.max_frame_bytes:
            return frame
        name = self._random.choice(sorted(parts))
        place = parts[name]
        changed = bytearray(frame)
        for bit in self._choose_bits(len(place)):
            changed[payload_at + place[bit // 8]] ^= 1 << bit % 8
        self._flipped = (direction, name)
        return bytes(changed)

    def _choose_bits(self, size: int) -> list[int]:
        """Return which bits of so many bytes to turn over: bit b % 8, from the lowest, of byte b // 8."""
        if self._same_bit is None:
            return self._random.sample(range(8 * size), self._bits)
        byte, bit = divmod(self._same_bit, 8)
        return [8 * (4 * word + 3 - byte) + bit for word in self._random.sample(range(size // 4), 2)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Flip bits of frames, and count what becomes of the sums.")
    parser.add_argument("--flips", type=int, default=100_000, help="collectives to disturb (default: 100000)")
    parser.add_argument("--bits", type=int, default=1, help="bits to turn over in one part of one frame (default: 1)")
    parser.add_argument("--same", type=int, default=None, help="turn this bit over in two words of the blocks instead")
    parser.add_argument("--of", choices=FORMATS, default="int32", help="what is summed (default: int32)")
    parser.add_argument("--tree", choices=TREES, help="over this tree of switches (default: one switch, two ranks)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    shape = TREES[options.tree] if options.tree else ONE_SWITCH
    flips = BitFlips(options.seed, options.bits, of=options.of, same_bit=options.same, shape=shape)
    flips.run(options.flips)
    rows = sorted({key[:2] for key in flips.outcomes})
    print(" " * 33 + "".join(f"{outcome:>13}" for outcome in OUTCOMES))
    for direction, part in rows:
        counts = "".join(f"{flips.outcomes[direction, part, outcome]:13}" for outcome in OUTCOMES)
        print(f"{direction:10} {part:22}{counts}")
    wrong = sum(count for key, count in flips.outcomes.items() if key[2] == WRONG)
    print(f"{flips.outcomes.total()} disturbed frames, {wrong} wrong sums handed out")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
