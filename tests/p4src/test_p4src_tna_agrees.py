"""The TNA program and the v1model program get the same frames, many of them damaged, and answer with the same bytes."""

from __future__ import annotations

import random

import pytest

from p4reduce_switch.program import Replica
from rigs import wire
from rigs.pipeline import PipelineRig, rank_port
from rigs.tna_rig import TnaRig

RANKS, SLOTS, STEPS = 3, 3, 400
FLOOD_GROUP = 1
PORTS = (1, 2, 3, 9)
COUNTERS = ("contributions", "duplicates", "results", "pendings")


def rigs(geometry: str) -> tuple[PipelineRig, TnaRig]:
    v1model, tna = PipelineRig(geometry, RANKS), TnaRig(geometry, RANKS)
    v1model.program.replication.multicast_groups[FLOOD_GROUP] = [Replica(port, 0) for port in PORTS]
    tna.tna.groups[FLOOD_GROUP] = [(port, 0) for port in PORTS]
    return v1model, tna


def a_contribution(rig: PipelineRig, rand: random.Random, slot: int, round_: int) -> bytes:
    keys = tuple(rand.choice((rand.getrandbits(32), wire.KEY_NONE)) for _ in range(rig.geometry.columns))
    columns = [column for column in range(rig.geometry.columns) if rand.random() < 0.5]
    return rig.contribution(slot, round_, keys, {c: rand.randbytes(rig.geometry.block_bytes) for c in columns})


@pytest.mark.parametrize(("geometry", "seed"), [("tofino1-4x8", 1), ("tofino1-4x8", 2), ("tofino2-4x16", 3)])
@pytest.mark.slow
def test_the_same_frames_get_the_same_answers(geometry: str, seed: int) -> None:
    """Ranks in lock step, from a random round on: contributions, repetitions of the last two rounds, flipped bits."""
    rand = random.Random(seed)
    v1model, tna = rigs(geometry)
    start = rand.choice((0, 2**32 - 7))
    rounds = dict.fromkeys(range(SLOTS), 0)
    sent: dict[tuple[int, int], list[bytes]] = {(slot, rank): [] for slot in range(SLOTS) for rank in range(RANKS)}
    for _ in range(STEPS):
        slot, rank = rand.randrange(SLOTS), rand.randrange(RANKS)
        done = sent[slot, rank]
        if len(done) == rounds[slot]:
            payload = a_contribution(v1model, rand, slot, (start + rounds[slot]) % 2**32)
        else:
            payload = rand.choice(done[-2:])
        frame = v1model.frame(rank, payload)
        if damaged := rand.random() < 0.4:
            bit = rand.randrange(8 * len(frame))
            frame = (int.from_bytes(frame, "big") ^ 1 << bit).to_bytes(len(frame), "big")
            if len(done) == rounds[slot] and bit >= 8 * (42 + v1model.geometry.frame_header_bytes):
                continue  # a flipped block is a contribution like any other: it would be this rank's
        answers = v1model.process(rank_port(rank), frame)
        assert tna.process(rank_port(rank), frame) == answers
        if not damaged and len(done) == rounds[slot]:
            done.append(payload)
            rounds[slot] += all(len(sent[slot, other]) > rounds[slot] for other in range(RANKS))
    assert min(rounds.values()) > 2
    assert tna.drops() == v1model.drops() and len(tna.drops()) > 5
    assert [tna.job_count(name) for name in COUNTERS] == [v1model.job_count(name) for name in COUNTERS]
    for slot in range(SLOTS):
        for version in (0, 1):
            of_tna, of_v1model = tna.version_state(slot, version), v1model.version_state(slot, version)
            held = [column for column in range(tna.geometry.columns) if of_tna.held >> column & 1]
            assert [of_tna.sums[column] for column in held] == [of_v1model.sums[column] for column in held]
            assert (of_tna.epoch, of_tna.round, of_tna.seen, of_tna.held, of_tna.check, of_tna.keys) == (
                of_v1model.epoch, of_v1model.round, of_v1model.seen, of_v1model.held, of_v1model.check, of_v1model.keys
            )  # fmt: skip


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
