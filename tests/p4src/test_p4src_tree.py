"""The compiled program as a leaf, and trees of it: partial sums go up, results and waits come down."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from p4reduce_contracts import wire
from p4reduce_contracts.wire.check import check_of
from rigs.pipeline import (
    EPOCH,
    JOB,
    SLOT_COUNT,
    UPLINK_PORT,
    PipelineRig,
    from_host,
    payload_of,
    rank_host,
    rank_port,
    switch_host,
    udp_frame,
    with_secret,
)
from rigs.secret import rank_secret
from rigs.tna_rig import TnaRig
from rigs.tree import TREES, Place, Shape, TreeRig, racks

UPLINK_SECRET = 0x1122334455667788
PARENT = switch_host(9, UPLINK_SECRET)
DROP_TYPE, DROP_NOT_ADMITTED, DROP_EPOCH, DROP_SLOT, DROP_RESERVED, DROP_HEADER_CHECKSUM = 4, 5, 6, 7, 11, 13
Packet = tuple[int, bytes]


@pytest.fixture(params=["v1model", "tofino1-4x8", "tofino2-4x16"])
def leaf(request: pytest.FixtureRequest) -> Callable[..., PipelineRig]:
    """Makes a leaf of so many ranks, of each target's program."""

    def make(ranks: int = 2) -> PipelineRig:
        if request.param == "v1model":
            return PipelineRig("small", ranks, parent=PARENT)
        return TnaRig(request.param, ranks, parent=PARENT)

    return make


Leaf = Callable[..., PipelineRig]


def block_of(rig: PipelineRig | TreeRig, value: int) -> bytes:
    return (value % 2**32).to_bytes(4, "big") * rig.geometry.block_words


def contribution(rig: PipelineRig, round_: int = 0, value: int | None = None, key: int = wire.KEY_NONE) -> bytes:
    keys = (key, *[wire.KEY_NONE] * (rig.geometry.columns - 1))
    return rig.contribution(1, round_, keys, {} if value is None else {2: block_of(rig, value)})


def read(rig: PipelineRig | TreeRig, frame: bytes) -> wire.Frame:
    return wire.unpack(rig.geometry, payload_of(frame))


def answer(rig: PipelineRig, kind: int, round_: int = 0, **fields: int) -> bytes:
    """What the parent sends down, with blocks if it is a RESULT."""
    blocks = block_of(rig, 9) if kind == wire.RESULT else b""
    present = 4 if blocks else 0
    check = check_of(present, blocks, rig.geometry.block_words)
    keys = (wire.KEY_NONE,) * rig.geometry.columns
    frame = wire.Frame(kind, JOB, present, EPOCH, 1, round_, 0b11, UPLINK_SECRET, check, keys, blocks)
    return from_host(PARENT, wire.pack(rig.geometry, frame._replace(**fields)))


def test_a_complete_round_goes_to_the_parent_alone_as_a_contribution(leaf: Leaf) -> None:
    rig = leaf()
    assert rig.send(1, contribution(rig, value=5, key=wire.key_of(3, 100))) == []
    [(port, frame)] = rig.send(0, contribution(rig, value=6, key=wire.key_of(2, 90)))
    own = switch_host(0, 0)
    assert port == UPLINK_PORT
    assert (frame[0:6], frame[6:12]) == (PARENT.mac.to_bytes(6, "big"), own.mac.to_bytes(6, "big"))
    assert (frame[26:30], frame[30:34]) == (own.ip.to_bytes(4, "big"), PARENT.ip.to_bytes(4, "big"))
    assert frame[34:38] == 2 * wire.AGGREGATION_PORT.to_bytes(2, "big")
    sent = read(rig, frame)
    assert (sent.type, sent.level, sent.seen, sent.secret) == (wire.CONTRIBUTE, 0, 0, UPLINK_SECRET)
    assert (sent.job, sent.epoch, sent.slot, sent.round) == (JOB, EPOCH, 1, 0)
    assert (sent.present, sent.blocks) == (4, block_of(rig, 11))
    assert sent.keys[0] == wire.key_of(2, 90)
    assert sent.check == check_of(4, sent.blocks, rig.geometry.block_words)
    assert (rig.job_count("contributions"), rig.job_count("results")) == (2, 1)


def test_a_duplicate_of_a_complete_round_sends_the_stored_partial_up_again(leaf: Leaf) -> None:
    rig = leaf()
    rig.send(0, contribution(rig, value=5))
    [first] = rig.send(1, contribution(rig, value=6))
    for rank, value in ((0, 5), (1, 6), (1, 77)):
        assert rig.send(rank, contribution(rig, value=value)) == [first]
    rig.send(0, contribution(rig, 1))
    assert rig.send(1, contribution(rig, value=6)) == [first], "while the next round fills"
    assert rig.job_count("duplicates") == 4


def test_a_duplicate_of_an_incomplete_round_is_answered_by_the_leaf(leaf: Leaf) -> None:
    rig = leaf()
    rig.send(1, contribution(rig, value=5))
    [(port, frame)] = rig.send(1, contribution(rig, value=5))
    found = read(rig, frame)
    assert (port, found.type, found.level, found.seen, found.secret) == (
        rank_port(1), wire.PENDING, 0, 0b10, rank_secret(1),
    )  # fmt: skip


@pytest.mark.parametrize("kind", [wire.RESULT, wire.PENDING])
@pytest.mark.parametrize("level", [0, 3])
def test_an_answer_of_the_parent_goes_to_all_children_one_level_down(leaf: Leaf, kind: int, level: int) -> None:
    rig = leaf(3)
    before = [rig.version_state(1, version) for version in (0, 1)]
    came = answer(rig, kind, 4, level=level)
    outputs = rig.process(UPLINK_PORT, came)
    assert [port for port, _ in outputs] == [rank_port(rank) for rank in range(3)]
    for rank, (_, frame) in enumerate(outputs):
        expected = read(rig, came)._replace(level=level + 1, secret=rank_secret(rank))
        assert read(rig, frame) == expected, "the header checksum is right too, or it could not be unpacked"
        host, own = rank_host(rank, 0), switch_host(0, 0)
        assert frame[0:6] == host.mac.to_bytes(6, "big")
        assert frame[26:34] == own.ip.to_bytes(4, "big") + host.ip.to_bytes(4, "big")
        assert frame[34:38] == wire.AGGREGATION_PORT.to_bytes(2, "big") + host.udp_port.to_bytes(2, "big")
    assert [rig.version_state(1, version) for version in (0, 1)] == before, "no register is touched"
    assert (rig.job_count("parent_answers"), rig.job_count("contributions"), rig.drops()) == (1, 0, {})


def sealed(rig: PipelineRig, kind: int, **fields: int) -> Packet:
    return UPLINK_PORT, answer(rig, kind, **fields)


def from_rank(rig: PipelineRig, kind: int, **fields: int) -> Packet:
    payload = answer(rig, kind, **fields)[42:]
    return rank_port(0), udp_frame(0, with_secret(payload, rank_secret(0)))


def flipped(rig: PipelineRig, offset: int) -> Packet:
    frame = answer(rig, wire.RESULT)
    place = 42 + offset
    return UPLINK_PORT, frame[:place] + bytes((frame[place] ^ 1,)) + frame[place + 1 :]


DROPPED = {
    "a RESULT of a rank": (DROP_TYPE, lambda rig: from_rank(rig, wire.RESULT)),
    "a PENDING of a rank": (DROP_TYPE, lambda rig: from_rank(rig, wire.PENDING)),
    "a rank's RESULT with the uplink's secret": (
        DROP_NOT_ADMITTED, lambda rig: (rank_port(0), udp_frame(0, answer(rig, wire.RESULT)[42:])),
    ),
    "the parent's frame at a rank's port": (DROP_NOT_ADMITTED, lambda rig: (1, answer(rig, wire.RESULT))),
    "the parent's frame with a rank's secret": (
        DROP_NOT_ADMITTED, lambda rig: sealed(rig, wire.RESULT, secret=rank_secret(0)),
    ),
    "another job": (DROP_NOT_ADMITTED, lambda rig: sealed(rig, wire.RESULT, job=JOB + 1)),
    "a contribution of the parent": (DROP_TYPE, lambda rig: sealed(rig, wire.CONTRIBUTE, seen=0)),
    "another epoch": (DROP_EPOCH, lambda rig: sealed(rig, wire.RESULT, epoch=EPOCH - 1)),
    "a slot behind the lease": (DROP_SLOT, lambda rig: sealed(rig, wire.PENDING, slot=SLOT_COUNT)),
    "a flipped bit of the level": (DROP_HEADER_CHECKSUM, lambda rig: flipped(rig, 3)),
    "a flipped bit of seen": (DROP_HEADER_CHECKSUM, lambda rig: flipped(rig, 15)),
    "a contribution with a level": (
        DROP_RESERVED, lambda rig: from_rank(rig, wire.CONTRIBUTE, seen=0, level=1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DROPPED)
def test_what_is_not_the_parent_s_answer_is_dropped(leaf: Leaf, name: str) -> None:
    rig = leaf()
    rig.send(0, contribution(rig, value=5))
    before = rig.version_state(1, 0)
    reason, packet = DROPPED[name]
    assert rig.process(*packet(rig)) == []
    assert rig.drops() == {reason: 1}
    assert rig.version_state(1, 0) == before


def test_a_root_takes_no_answers() -> None:
    rig = PipelineRig("small", 2)
    assert rig.process(*from_rank(rig, wire.RESULT)) == []
    assert rig.drops() == {DROP_TYPE: 1}


SHAPES: dict[str, Shape] = {
    **TREES,
    "ranks beside switches": [0, [1, 4], [2, [3, 5]]],
    "one rack of 8": [list(range(8))],
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("geometry", ["small", "default"])
def test_random_rounds_sum_exactly_over_a_tree(name: str, geometry: str) -> None:
    rig = TreeRig(geometry, SHAPES[name])
    ranks, columns = rig.world_size, rig.geometry.columns
    numbers = np.random.default_rng(ranks)
    for round_ in range(12):
        union: dict[int, np.ndarray] = {}
        keys = numbers.integers(0, 2**32, (ranks, columns), dtype=np.uint64)
        arrived: list[Packet] = []
        for rank in numbers.permutation(ranks):
            blocks = {}
            for column in range(columns):
                if numbers.random() < 0.5:
                    data = numbers.integers(0, 2**32, rig.geometry.block_words, dtype=np.uint64)
                    blocks[column] = data.astype(">u4").tobytes()
                    union[column] = union.get(column, np.uint64(0)) + data
            assert arrived == []
            payload = rig.switches[0].contribution(1, round_, tuple(map(int, keys[rank])), blocks)
            arrived = rig.send(int(rank), payload)
        assert sorted(rank for rank, _ in arrived) == list(range(ranks))
        expected = b"".join((union[c] % 2**32).astype(">u4").tobytes() for c in sorted(union))
        for rank, frame in arrived:
            result = read(rig, frame)
            assert (result.type, result.secret) == (wire.RESULT, rank_secret(rank))
            assert result.level == len(rig.above(rank)) - 1
            assert result.seen == (1 << len(rig.children[0])) - 1, "the root's children"
            assert result.keys == tuple(map(int, keys.min(axis=0)))
            assert result.blocks == expected
            assert result.check == check_of(result.present, expected, rig.geometry.block_words)


def test_a_rank_s_duplicate_brings_the_result_to_its_rack_again() -> None:
    rig = TreeRig("small", racks(2, 2))
    first = rig.switches[0].contribution(blocks={0: block_of(rig, 1)})
    results = [rig.send(rank, first) for rank in range(4)][-1]
    again = rig.send(2, first)
    assert [rank for rank, _ in again] == [2, 3]
    assert again == [packet for packet in results if packet[0] in (2, 3)]


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
