"""The compiled program's rounds: what truth_table.toml has no row for."""

from __future__ import annotations

import pytest

from p4reduce_contracts import wire
from p4reduce_contracts.wire.check import check_of
from rigs.pipeline import PipelineRig, payload_of

DROP_STALE = 8


def block_of(rig: PipelineRig, value: int) -> bytes:
    return (value % 2**32).to_bytes(4, "big") * rig.geometry.block_words


def result_of(rig: PipelineRig, frame: bytes) -> wire.Frame:
    return wire.unpack(rig.geometry, payload_of(frame))


def test_the_previous_round_s_result_survives_the_next_round() -> None:
    rig = PipelineRig("small", 2)
    for rank in (0, 1):
        rig.send(rank, rig.contribution(round_=4, blocks={1: block_of(rig, rank + 1)}))
    rig.send(0, rig.contribution(round_=5, blocks={1: block_of(rig, 9)}))
    [(_, frame)] = rig.send(1, rig.contribution(round_=4, blocks={1: block_of(rig, 2)}))
    assert result_of(rig, frame).round == 4
    assert result_of(rig, frame).blocks == block_of(rig, 3)


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
