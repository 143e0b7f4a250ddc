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
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

if __name__ == "__main__":
    sys.path.extend(str(Path(__file__).resolve().parents[2] / tests) for tests in ("tests", "softswitch/tests"))

from p4reduce.codecs import Floats, Gathered, Int32, Lanes, Segment
from p4reduce.errors import CollectiveError, CorruptSumError
from p4reduce.protocol.call import Call
from p4reduce.testing.world import Member, NetworkConditions, Place, World
from p4reduce_contracts.jobs.lease import Lease, LeasedSwitch
from p4reduce_contracts.wire.calls import Kind
from p4reduce_contracts.wire.numbers import BASE_BYTES, GUARD_BYTES
from p4reduce_runtime.underlay import ENCAP_BYTES
from rigs.float_sums import summed_words
from rigs.pipeline import JOB, SLOT_COUNT, is_for
from rigs.secret import rank_secret
from rigs.tree import TREES, Shape, TreeRig

ONE_SWITCH: Final[Shape] = [0, 1]
TIMEOUT_S: Final = 100.0
AT_ONCE: Final = NetworkConditions(delay_s=0.0, jitter=0.0, start_s=0.0)

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

    It is between the switches and their network, a World.

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
        sources = [segment.bind(ranks, geometry.block_words, True) for segment in segments]
        members = [
            Member(
                Lease(
                    *(JOB, "flips", self._epoch, rank, ranks, SLOT_COUNT, geometry.columns, geometry.block_words),
                    switches=(LeasedSwitch(secret=rank_secret(rank), levels=self._tree.levels(rank)),),
                ),
                [(sources[rank], call)],
                self._rounds[rank],
                TIMEOUT_S,
            )
            for rank in self._ranks
        ]
        self._seen = 0
        try:
            results = World(self, members, AT_ONCE, 0).run()
        except CorruptSumError:
            return CORRUPT_SUM
        except CollectiveError:
            return OTHER_ERROR
        self._rounds = [member.rounds for member in members]
        words, exponents = summed_words(sources, geometry.block_words)
        expected = [source.decode(words, exponents)[0] for source in sources]
        got = [result[0] for (result,) in results]
        return RIGHT if all(np.array_equal(*pair) for pair in zip(got, expected, strict=True)) else WRONG

    def framed(self, rank: int, payload: bytes) -> tuple[Place, bytes]:
        return self._tree.framed(rank, payload)

    def payload(self, frame: bytes) -> bytes:
        return self._tree.payload(frame)

    def arrive(self, place: Place, frame: bytes) -> list[tuple[Place, bytes]]:
        """What leaves a switch for a frame that may be disturbed; of that, what is for a rank may be, too."""
        sender = self._tree.sender(place)
        direction = "up" if sender < 0 else "trunk up" if self._tree.parents[sender] == place.switch else "trunk down"
        leaving = []
        for to, sent in self._tree.arrive(place, self._disturb(frame, ENCAP_BYTES, direction)):
            if to.rank < 0:
                leaving.append((to, sent))
            elif is_for(to.rank, sent):  # else another host's, or no host's
                leaving.append((to, sent[:ENCAP_BYTES] + self._disturb(sent[ENCAP_BYTES:], 0, "down")))
        return leaving

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
