"""Trees of the compiled program: partial sums go up, results and waits come down. A leaf alone: truth_table.toml."""

from __future__ import annotations

import pytest

from p4reduce_contracts import wire
from rigs.pipeline import payload_of, rank_port
from rigs.random_rounds import random_rounds
from rigs.secret import rank_secret
from rigs.tree import TREES, Place, Shape, TreeRig, racks


def block_of(rig: TreeRig, value: int) -> bytes:
    return (value % 2**32).to_bytes(4, "big") * rig.geometry.block_words


def read(rig: TreeRig, frame: bytes) -> wire.Frame:
    return wire.unpack(rig.geometry, payload_of(frame))


SHAPES: dict[str, Shape] = {
    **TREES,
    "ranks beside switches": [0, [1, 4], [2, [3, 5]]],
    "one rack of 8": [list(range(8))],
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("geometry", ["small", "default"])
def test_random_rounds_sum_exactly_over_a_tree(name: str, geometry: str) -> None:
    rig = TreeRig(geometry, SHAPES[name])
    for round_, arrived in random_rounds(rig, rig.switches[0].contribution, 12):
        assert sorted(rank for rank, _ in arrived) == list(range(rig.world_size))
        for rank, frame in arrived:
            result = read(rig, frame)
            assert (result.type, result.secret) == (wire.RESULT, rank_secret(rank))
            assert result.level == len(rig.above(rank)) - 1
            assert result.seen == (1 << len(rig.children[0])) - 1, "the root's children"
            round_.check(result)


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
