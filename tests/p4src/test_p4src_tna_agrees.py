"""The TNA program and the v1model program get the same frames, many of them damaged, and answer with the same bytes."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from rigs import wire
from rigs.pipeline import PipelineRig
from rigs.tna_rig import TnaRig
from rigs.traffic import COUNTERS, PORTS, RANKS, SLOTS, damaged_traffic

STEPS = 900


def rigs(geometry: str) -> tuple[PipelineRig, TnaRig]:
    v1model, tna = PipelineRig(geometry, RANKS), TnaRig(geometry, RANKS)
    for rig in (v1model, tna):
        rig.flood_to(PORTS)
    return v1model, tna


@pytest.mark.parametrize(("geometry", "seed"), [("tofino1-4x8", 1), ("tofino1-4x8", 2), ("tofino2-4x16", 3)])
@pytest.mark.slow
def test_the_same_frames_get_the_same_answers(geometry: str, seed: int) -> None:
    v1model, tna = rigs(geometry)
    for port, frame in damaged_traffic(v1model, random.Random(seed), STEPS):
        assert tna.process(port, frame) == v1model.process(port, frame)
    assert tna.drops() == v1model.drops() and len(tna.drops()) > 5
    assert [tna.job_count(name) for name in COUNTERS] == [v1model.job_count(name) for name in COUNTERS]
    for slot in range(SLOTS):
        for version in (0, 1):
            of_tna, of_v1model = tna.version_state(slot, version), v1model.version_state(slot, version)
            held = [column for column in range(tna.geometry.columns) if of_tna.held >> column & 1]
            assert [of_tna.sums[column] for column in held] == [of_v1model.sums[column] for column in held]
            assert replace(of_tna, sums=()) == replace(of_v1model, sums=())


def test_a_frame_out_of_lock_step_affects_only_its_sender() -> None:
    """Its frame is dropped and changes no sum, as in v1model; but its own tag has moved, so that it is out until the
    next epoch: its right contribution counts as a duplicate."""
    v1model, tna = rigs("tofino1-4x8")
    for rig in (v1model, tna):
        rig.send(1, rig.contribution(round_=10))
        before = rig.version_state(0, 0)
        assert rig.send(0, rig.contribution(round_=14)) == []
        assert rig.version_state(0, 0) == before
        assert len(rig.drops()) == 1
    assert v1model.send(0, v1model.contribution(round_=10)) == []
    [(_, reply)] = tna.send(0, tna.contribution(round_=10))
    assert wire.unpack(tna.geometry, reply[42:]).type == wire.PENDING
    assert tna.version_state(0, 0) == before
    tna.renew(30)
    assert tna.send(0, tna.contribution(round_=10, epoch=30)) == []
    assert tna.version_state(0, 0).seen == 1
