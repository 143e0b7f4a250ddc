"""One switch and trees of the compiled program: partial sums go up, results come down (a leaf: truth_table.toml)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from p4reduce_contracts import wire
from p4reduce_contracts.wire import Geometry
from p4reduce_contracts.wire.check import check_of
from rigs.pipeline import EPOCH, JOB, payload_of, rank_port
from rigs.secret import rank_secret
from rigs.tree import TREES, Place, Shape, TreeRig, racks

SLOT = 1
Outputs = list[tuple[int, bytes]]


def block_of(rig: TreeRig, value: int) -> bytes:
    return (value % 2**32).to_bytes(4, "big") * rig.geometry.block_words


def read(rig: TreeRig, frame: bytes) -> wire.Frame:
    return wire.unpack(rig.geometry, payload_of(frame))


SHAPES: dict[str, Shape] = {
    **TREES,
    "ranks beside switches": [0, [1, 4], [2, [3, 5]]],
    "one rack of 8": [list(range(8))],
    "one switch, 1 rank": [0],
    "one switch, 2 ranks": [0, 1],
    "one switch, 8 ranks": list(range(8)),
}


@dataclass(frozen=True)
class RandomRound:
    """What all ranks together gave: random columns, and words in the full 32-bit range."""

    geometry: Geometry
    number: int
    keys: tuple[int, ...]
    sums: dict[int, NDArray[np.uint64]]

    def check(self, result: wire.Frame) -> None:
        """Compare a RESULT with numpy's sums modulo 2^32."""
        blocks = b"".join((self.sums[column] % 2**32).astype(">u4").tobytes() for column in sorted(self.sums))
        assert (result.slot, result.round, result.keys) == (SLOT, self.number, self.keys)
        assert (result.present, result.blocks) == (sum(1 << column for column in self.sums), blocks)
        assert result.check == check_of(result.present, blocks, self.geometry.block_words)


def random_rounds(rig: TreeRig, count: int) -> Iterator[tuple[RandomRound, Outputs]]:
    """Yield rounds with what the last contribution of each brings; those before it bring nothing."""
    ranks, columns, words = rig.world_size, rig.geometry.columns, rig.geometry.block_words
    numbers, contribution = np.random.default_rng(ranks), rig.switches[0].contribution
    for number in range(count):
        sums: dict[int, NDArray[np.uint64]] = {}
        keys = numbers.integers(0, 2**32, (ranks, columns), dtype=np.uint64)
        outputs: Outputs = []
        for rank in numbers.permutation(ranks):
            blocks = {}
            for column in range(columns):
                if numbers.random() < 0.5:
                    data = numbers.integers(0, 2**32, words, dtype=np.uint64)
                    blocks[column] = data.astype(">u4").tobytes()
                    sums[column] = sums.get(column, np.uint64(0)) + data
            assert outputs == []
            outputs = rig.send(int(rank), contribution(SLOT, number, tuple(map(int, keys[rank])), blocks))
        yield RandomRound(rig.geometry, number, tuple(map(int, keys.min(axis=0))), sums), outputs


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("geometry", ["small", "default"])
def test_random_rounds_sum_exactly(name: str, geometry: str) -> None:
    rig = TreeRig(geometry, SHAPES[name])
    for round_, arrived in random_rounds(rig, 12):
        assert sorted(rank for rank, _ in arrived) == list(range(rig.world_size))
        for rank, frame in arrived:
            result = read(rig, frame)
            assert (result.type, result.secret) == (wire.RESULT, rank_secret(rank))
            assert (result.job, result.epoch) == (JOB, EPOCH)
            assert result.level == len(rig.above(rank)) - 1
            assert result.seen == (1 << len(rig.children[0])) - 1, "the root's children"
            round_.check(result)
    for switch, children in enumerate(rig.children):
        counted = [rig.switches[switch].job_count(name) for name in ("contributions", "results")]
        assert counted == [12 * len(children), 12], "each switch completes each round once"


def test_a_rank_s_duplicate_brings_the_result_to_its_rack_again() -> None:
    rig = TreeRig("small", racks(2, 2))
    first = rig.switches[0].contribution(blocks={0: block_of(rig, 1)})
    results = [rig.send(rank, first) for rank in range(4)][-1]
    again = rig.send(2, first)
    assert [rank for rank, _ in again] == [2, 3]
    assert again == [packet for packet in results if packet[0] in (2, 3)]
    assert rig.send(3, rig.switches[0].contribution(round_=1)) == []
    assert rig.send(2, first) == again, "while the next round fills"


def test_pending_says_what_the_parent_waits_for() -> None:
    rig = TreeRig("small", racks(3, 2))
    payload = rig.switches[0].contribution()
    for rank in (2, 3, 4):
        assert rig.send(rank, payload) == []
    found = {rank: read(rig, frame) for rank, frame in rig.send(2, payload)}
    assert {rank: (one.type, one.level, one.seen) for rank, one in found.items()} == {
        2: (wire.PENDING, 1, 0b010), 3: (wire.PENDING, 1, 0b010),
    }  # fmt: skip
    [(rank, frame)] = rig.send(4, payload)
    assert (rank, read(rig, frame).level, read(rig, frame).seen) == (4, 0, 0b01)


def test_a_lost_partial_is_repaired_by_a_rank_s_duplicate() -> None:
    rig = TreeRig("small", racks(2, 2))
    payload = rig.switches[0].contribution(blocks={1: block_of(rig, 3)})
    rig.send(0, payload)
    place, frame = rig.sent(1, payload)
    [(up, partial)] = rig.arrive(place, frame)
    assert up == Place(0, rank_port(0)) and partial  # and is lost
    assert rig.send(2, payload) == rig.send(3, payload) == []
    arrived = rig.send(0, payload)
    assert sorted(rank for rank, _ in arrived) == [0, 1, 2, 3]
    assert all(read(rig, frame).blocks == block_of(rig, 12) for _, frame in arrived)
