"""Mutated frames beside the frames of a running job whose sums must stay exact.

python tests/fuzz/foreign_frames.py --frames 10000000      prints what became of them; exit status 1 after a wrong sum

Two workers' engines call one collective after the other over two compiled programs side by side. Between their frames
come mutated ones: contributions, HELLOs, ordinary traffic, from the ranks' own ports and from others, and answers that
claim to be a switch's; also those of the other switch. They hold everything of the job that is not secret, but no
rank's secret at that rank's own port of that switch.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from array import array
from collections import Counter
from pathlib import Path
from typing import Final

import numpy as np

if __name__ == "__main__":
    sys.path.extend(str(Path(__file__).resolve().parents[2] / tests) for tests in ("tests", "softswitch/tests"))

from fuzz.mutations import mutated
from p4reduce.codecs import Int32
from p4reduce.protocol.call import Call
from p4reduce.protocol.collective import Collective
from p4reduce.protocol.datagram import Datagram, switch_of
from p4reduce.protocol.initial_state import Records
from p4reduce_contracts.jobs.lease import Lease, LeasedSwitch
from p4reduce_contracts.wire.calls import CodecId, Kind
from p4reduce_runtime.underlay import ENCAP_BYTES
from rigs import wire
from rigs.pipeline import EPOCH, JOB, SECRET_AT, SLOT_COUNT, PipelineRig, is_for, rank_host, rank_port, udp_frame
from rigs.secret import rank_secret

RANKS: Final = 2
SWITCHES: Final = 2
PORTS: Final = (*(rank_port(rank) for rank in range(RANKS)), 40, 509)
A_FRAME: Final = 40
"""Mutated frames that come with each frame of the job."""
KEPT: Final = 64
"""Real frames that the mutated ones are made of: the last so many."""
ELEMENTS: Final = 500


def secret(number: int, rank: int) -> int:
    return number << 32 ^ rank_secret(rank)


class ForeignFrames:
    """`run(n)` sends at least n mutated frames and returns how many collectives were checked meanwhile."""

    def __init__(self, seed: int) -> None:
        self.sent_up = 0
        self.sent_down = 0
        self.contributions = 0
        self._random = random.Random(seed)
        self._numbers = np.random.default_rng(seed)
        self.rigs = [
            PipelineRig("small", RANKS, children=[rank_host(rank, secret(number, rank)) for rank in range(RANKS)])
            for number in range(SWITCHES)
        ]
        self._rounds = [array("q", [0]) * SWITCHES * SLOT_COUNT for _ in range(RANKS)]
        self._operation = 0
        hello = udp_frame(0, wire.pack_hello(JOB, self._random.getrandbits(64)))
        self._up, self._down = [hello], [b""]

    @property
    def sent(self) -> int:
        """Mutated frames so far, to the switch and to the workers."""
        return self.sent_up + self.sent_down

    def run(self, frames: int) -> int:
        """AssertionError at the first sum that is not exact; an error of a collective passes through."""
        collectives, end = 0, self.sent + frames
        while self.sent < end:
            self._collective()
            collectives += 1
        return collectives

    def _collective(self) -> None:
        geometry = self.rigs[0].geometry
        tensors = self._numbers.integers(-(2**31), 2**31, (RANKS, ELEMENTS)).astype(np.int32)
        call = Call(self._operation, Kind.ALL_REDUCE, CodecId.INT32, 0, ELEMENTS)
        self._operation += 1
        engines = []
        for rank in range(RANKS):
            shape = (geometry.columns, geometry.block_words)
            lease = Lease(
                JOB,
                "fuzzed",
                EPOCH,
                rank,
                RANKS,
                SWITCHES * SLOT_COUNT,
                *shape,
                switches=tuple(LeasedSwitch(secret=secret(number, rank)) for number in range(SWITCHES)),
            )
            source = Int32(tensors[rank]).bind(RANKS, geometry.block_words, True)
            records = Records(lease, source.n_blocks, self._rounds[rank])
            engines.append(Collective(records, source, call, 100.0))
        flying = [(rank, payload) for rank, engine in enumerate(engines) for payload in engine.start(0.0)]
        while flying:
            rank, payload = flying.pop(0)
            frame = udp_frame(rank, payload)
            self._up = [*self._up[-KEPT:], frame]
            self._mutated_frames(engines)
            self.contributions += 1
            for to, answer in self._switch(switch_of(payload), rank_port(rank), frame):
                self._down = [*self._down[-KEPT:], answer]
                flying += [(to, more) for more in engines[to].receive(answer, 0.0)]
        expected = np.sum(tensors, axis=0, dtype=np.int32)
        for engine in engines:
            assert engine.done, "no frame was lost, so none has to be repeated"
            assert np.array_equal(engine.result()[0], expected), f"a wrong sum after {self.sent} mutated frames"

    def _mutated_frames(self, engines: list[Collective]) -> None:
        for _ in range(A_FRAME):
            number = self._random.randrange(SWITCHES)
            if self._random.random() < 0.1:
                payload = self._without_secret(mutated(self._random, self._down, RANKS), 0, number, range(RANKS))
                self.sent_down += 1
                engine = engines[self._random.randrange(RANKS)]
                assert not engine.receive(Datagram(payload, number), 0.0), "an engine took a forged frame"
                continue
            port = self._random.choice(PORTS)
            owners = [rank for rank in range(RANKS) if rank_port(rank) == port]
            frame = self._without_secret(mutated(self._random, self._up, RANKS), ENCAP_BYTES, number, owners)
            self.sent_up += 1
            for to, answer in self._switch(number, port, frame):
                assert not engines[to].receive(answer, 0.0), "the switch answered a forged frame"

    def _without_secret(self, frame: bytes, payload_at: int, number: int, ranks: range | list[int]) -> bytes:
        """The frame; with another secret, if it has that of one of the ranks at this switch at its place."""
        at = payload_at + SECRET_AT
        if int.from_bytes(frame[at : at + 8], "big") not in {secret(number, rank) for rank in ranks}:
            return frame
        place = at + self._random.randrange(8)
        return frame[:place] + bytes((frame[place] ^ 1 << self._random.randrange(8),)) + frame[place + 1 :]

    def drops(self) -> Counter[str]:
        """Return the frames that the switches dropped, by the name of the reason."""
        return sum((Counter(rig.drops()) for rig in self.rigs), Counter())

    def _switch(self, number: int, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """(rank, payload) of the aggregation frames that leave for a rank."""
        ranks = {rank_port(rank): rank for rank in range(RANKS)}
        sent = [(ranks[to], out) for to, out in self.rigs[number].program.process(port, frame) if to in ranks]
        return [(rank, Datagram(out[ENCAP_BYTES:], number)) for rank, out in sent if is_for(rank, out)]


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Send mutated frames beside a running job, whose sums must stay exact."
    )
    parser.add_argument("--frames", type=int, default=10_000_000, help="mutated frames to send (default: 10000000)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    foreign, collectives, began = ForeignFrames(options.seed), 0, time.monotonic()
    try:
        while foreign.sent < options.frames:
            collectives += foreign.run(min(10_000, options.frames - foreign.sent))
    except AssertionError as error:
        print(f"FAILED: {error}")
        return 1
    print(f"{foreign.sent_up} mutated frames to the switch, {foreign.sent_down} to the workers (seed {options.seed})")
    print(f"{collectives} collectives meanwhile, all sums exact; {time.monotonic() - began:.0f} s")
    print("dropped by the switch: " + ", ".join(f"{reason} {count}" for reason, count in foreign.drops().items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
