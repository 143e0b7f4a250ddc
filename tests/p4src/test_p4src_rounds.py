"""The compiled program's rounds: sums, keys, duplicates, stale frames, versions, epochs, who is answered."""

from __future__ import annotations

import random

import pytest

from p4reduce_contracts import wire
from p4reduce_contracts.wire.check import check_of
from rigs.pipeline import (
    EPOCH,
    JOB,
    SWITCH_IP,
    SWITCH_MAC,
    PipelineRig,
    payload_of,
    rank_ip,
    rank_mac,
    rank_port,
    rank_udp_port,
    with_secret,
)  # fmt: skip
from rigs.random_rounds import random_rounds
from rigs.secret import rank_secret

DROP_STALE, DROP_EPOCH, DROP_NOT_ADMITTED = 8, 6, 5


def words(*values: int) -> bytes:
    return b"".join((value % 2**32).to_bytes(4, "big") for value in values)


def block_of(rig: PipelineRig, value: int) -> bytes:
    return words(*[value] * rig.geometry.block_words)


def result_of(rig: PipelineRig, frame: bytes) -> wire.Frame:
    return wire.unpack(rig.geometry, payload_of(frame))


@pytest.mark.parametrize("geometry", ["small", "default"])
@pytest.mark.parametrize("world_size", [1, 2, 8])
def test_random_rounds_sum_exactly(geometry: str, world_size: int) -> None:
    rig = PipelineRig(geometry, world_size)
    for round_, outputs in random_rounds(rig, rig.contribution, 30):
        assert [port for port, _ in outputs] == [rank_port(rank) for rank in range(world_size)]
        result = result_of(rig, outputs[0][1])
        assert result.type == wire.RESULT
        assert (result.job, result.epoch, result.slot) == (JOB, EPOCH, 1)
        assert result.seen == (1 << world_size) - 1
        round_.check(result)
    assert rig.job_count("results") == 30
    assert rig.job_count("contributions") == 30 * world_size


def test_each_replica_carries_its_rank_s_address() -> None:
    rig = PipelineRig("small", 3)
    rig.send(0, rig.contribution())
    rig.send(1, rig.contribution())
    for rank, (port, frame) in enumerate(rig.send(2, rig.contribution())):
        assert port == rank_port(rank)
        assert frame[0:6] == rank_mac(rank).to_bytes(6, "big")
        assert frame[6:12] == SWITCH_MAC.to_bytes(6, "big")
        assert frame[26:30] == SWITCH_IP.to_bytes(4, "big")
        assert frame[30:34] == rank_ip(rank).to_bytes(4, "big")
        assert frame[34:36] == wire.AGGREGATION_PORT.to_bytes(2, "big")
        assert frame[36:38] == rank_udp_port(rank).to_bytes(2, "big")
        assert result_of(rig, frame).secret == rank_secret(rank)
    [(_, frame)] = rig.send(1, rig.contribution())
    assert result_of(rig, frame).secret == rank_secret(1)


def test_a_duplicate_of_an_incomplete_round_is_answered_with_the_ranks_present() -> None:
    rig = PipelineRig("small", 3)
    payload = rig.contribution(blocks={0: block_of(rig, 5)})
    assert rig.send(2, payload) == []
    [(port, frame)] = rig.send(2, payload)
    pending = result_of(rig, frame)
    assert port == rank_port(2)
    assert frame[0:6] == rank_mac(2).to_bytes(6, "big")
    assert (pending.type, pending.seen, pending.present, pending.check) == (wire.PENDING, 0b100, 0, 0)
    assert pending.secret == rank_secret(2)
    assert (rig.job_count("duplicates"), rig.job_count("pendings")) == (1, 1)


def test_a_duplicate_adds_nothing_and_is_answered_to_its_sender_alone() -> None:
    rig = PipelineRig("small", 2)
    first = rig.contribution(blocks={0: block_of(rig, 5), 2: block_of(rig, 1)})
    second = rig.contribution(blocks={0: block_of(rig, 6), 3: block_of(rig, -1)})
    rig.send(0, first)
    rig.send(0, first)
    results = rig.send(1, second)
    assert len(results) == 2
    expected = block_of(rig, 11) + block_of(rig, 1) + block_of(rig, -1)
    assert result_of(rig, results[0][1]).blocks == expected
    for rank, payload in ((1, second), (0, first), (1, rig.contribution())):  # the last: another present
        [(port, frame)] = rig.send(rank, payload)
        assert port == rank_port(rank)
        assert with_secret(payload_of(frame), 0) == with_secret(payload_of(results[0][1]), 0)
    assert rig.job_count("contributions") == 2


def test_the_previous_round_s_result_survives_the_next_round() -> None:
    rig = PipelineRig("small", 2)
    for rank in (0, 1):
        rig.send(rank, rig.contribution(round_=4, blocks={1: block_of(rig, rank + 1)}))
    rig.send(0, rig.contribution(round_=5, blocks={1: block_of(rig, 9)}))
    [(_, frame)] = rig.send(1, rig.contribution(round_=4, blocks={1: block_of(rig, 2)}))
    assert result_of(rig, frame).round == 4
    assert result_of(rig, frame).blocks == block_of(rig, 3)


def test_a_new_round_clears_the_round_two_before() -> None:
    rig = PipelineRig("small", 2)
    for round_ in (0, 2):
        for rank in (0, 1):
            column = 0 if round_ == 0 else 1
            last = rig.send(rank, rig.contribution(round_=round_, blocks={column: block_of(rig, 1)}))
    result = result_of(rig, last[0][1])
    assert (result.present, result.blocks) == (0b10, block_of(rig, 2))


@pytest.mark.parametrize("newest", [2, 2**31 + 5, 2**32 - 1, 0, 1])
def test_an_older_round_is_stale_around_the_wrap(newest: int) -> None:
    rig = PipelineRig("small", 2)
    rig.send(0, rig.contribution(round_=newest))
    for behind in (2, 100, 2**31 - 2):
        assert rig.send(1, rig.contribution(round_=(newest - behind) % 2**32)) == []
    assert rig.drops() == {DROP_STALE: 3}
    assert len(rig.send(1, rig.contribution(round_=newest))) == 2


@pytest.mark.fault("a round far ahead: STALE; the round continues")
@pytest.mark.parametrize("newest", [2, 2**31 + 5, 2**32 - 1])
@pytest.mark.parametrize("ahead", [4, 6, 1000, 2**31 - 2, 2**31])
def test_a_contribution_of_a_future_round_is_dropped(newest: int, ahead: int) -> None:
    """One frame of a member, or of who looks like one, from the future: the job goes on."""
    rig = PipelineRig("small", 2)
    rig.send(0, rig.contribution(round_=newest, blocks={0: block_of(rig, 1)}))
    assert rig.send(1, rig.contribution(round_=(newest + ahead) % 2**32)) == []
    assert rig.drops() == {DROP_STALE: 1}
    results = rig.send(1, rig.contribution(round_=newest, blocks={0: block_of(rig, 2)}))
    assert result_of(rig, results[0][1]).blocks == block_of(rig, 3)
    following = (newest + 2) % 2**32
    rig.send(1, rig.contribution(round_=following))
    assert len(rig.send(0, rig.contribution(round_=following))) == 2


def test_a_wrong_check_stays_wrong_in_the_sum() -> None:
    """The switch cannot see it, but it must not hide it either: it adds check words as they come."""
    rig = PipelineRig("small", 2)
    bad = wire.unpack(rig.geometry, rig.contribution(blocks={0: block_of(rig, 5)}))
    rig.send(0, wire.pack(rig.geometry, bad._replace(check=(bad.check + 1) % 2**32)))
    result = result_of(rig, rig.send(1, rig.contribution(blocks={1: block_of(rig, 6)}))[0][1])
    assert result.check == (check_of(result.present, result.blocks, rig.geometry.block_words) + 1) % 2**32


@pytest.mark.fault("round numbers wrap: nothing")
def test_rounds_go_on_over_the_wrap() -> None:
    rig = PipelineRig("small", 2)
    for step in range(6):
        round_ = (2**32 - 3 + step) % 2**32
        rig.send(0, rig.contribution(round_=round_, blocks={0: block_of(rig, step)}))
        results = rig.send(1, rig.contribution(round_=round_, blocks={0: block_of(rig, 1)}))
        assert result_of(rig, results[1][1]).blocks == block_of(rig, step + 1)
    assert rig.drops() == {}


def test_a_new_epoch_starts_over_at_round_zero() -> None:
    """What the registers hold of an older epoch is overwritten, however high its rounds were."""
    rig = PipelineRig("small", 2)
    for rank in (0, 1):
        rig.send(rank, rig.contribution(round_=1000, blocks={0: block_of(rig, 7)}))
    admit = rig.program.tables["MainIngress.admission.admit"]
    for entry in list(admit.entries()):
        admit.delete(entry.match, entry.priority)
    assert rig.send(0, rig.contribution(round_=1002)) == []
    for rank in (0, 1):
        rig.admit(rank, epoch=EPOCH + 1)
    assert rig.send(0, rig.contribution(round_=1002)) == []
    assert rig.drops() == {DROP_NOT_ADMITTED: 1, DROP_EPOCH: 1}
    frame = wire.unpack(rig.geometry, rig.contribution(round_=0, blocks={0: block_of(rig, 3)}))
    payload = wire.pack(rig.geometry, frame._replace(epoch=EPOCH + 1))
    rig.send(1, payload)
    results = rig.send(0, payload)
    assert result_of(rig, results[0][1]).blocks == block_of(rig, 6)


def test_slots_are_independent() -> None:
    rig = PipelineRig("small", 2)
    order = [(rank, slot) for rank in (0, 1) for slot in range(4)]
    random.Random(3).shuffle(order)
    sums = {}
    for rank, slot in order:
        for _, frame in rig.send(rank, rig.contribution(slot, blocks={0: block_of(rig, 10 * slot + rank)})):
            sums[result_of(rig, frame).slot] = result_of(rig, frame).blocks
    assert sums == {slot: block_of(rig, 20 * slot + 1) for slot in range(4)}
