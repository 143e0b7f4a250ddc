"""Frames that are only late are not sent again: a busy machine in virtual time, on which no frame is lost."""

from __future__ import annotations

import numpy as np
import pytest

from p4reduce.codecs import Int32
from p4reduce.protocol.call import Call, CodecId, Kind
from p4reduce.testing.reference_switch import ReferenceSwitch
from p4reduce.testing.world import Member, NetworkConditions, RootSwitches, World
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire.geometry import DEFAULT

RANKS, SLOTS, BLOCKS = 4, 64, 8192
"""1 MB on each rank."""
STALL_AFTER, STALL_S, PROBES = 600, 0.06, 5
"""Frames between two times in which the switch stands still, how long each lasts, and how many probes it may cost a
rank: after 5, 10 and 20 ms without a RESULT, which is as soon as a probe is sent, 1, 2 and 2."""


def tensor(rank: int, density: float) -> np.ndarray:
    """Return a rank's tensor; each rank has other blocks that are not zero."""
    held = np.random.default_rng((1, rank)).permutation(BLOCKS)[: round(density * BLOCKS)]
    blocks = np.zeros((BLOCKS, DEFAULT.block_words), np.int32)
    blocks[held] = rank + 1
    return blocks.reshape(-1)


@pytest.mark.fault(
    "the switch stalls for 60 ms repeatedly at 100 Mbit/s; no loss: each rank sends 5 probes at most each time"
)
@pytest.mark.parametrize("density", [0.5, 0.2, 0.1])
def test_few_frames_are_retransmitted_while_the_switch_is_stopped(density: float) -> None:
    """At 100 Mbit/s; the switch stands still several times a collective, each time as costly as the first."""
    tensors = [tensor(rank, density) for rank in range(RANKS)]
    switch = ReferenceSwitch(DEFAULT, SLOTS)
    switch.add_job(1, 7, RANKS, 0, SLOTS)
    members = [
        Member(
            Lease(1, "test", 7, rank, RANKS, SLOTS, DEFAULT.columns, DEFAULT.block_words),
            [
                (
                    Int32(own).bind(RANKS, DEFAULT.block_words, False),
                    Call(0, Kind.ALL_REDUCE, CodecId.INT32, 0, len(own)),
                )
            ],
            [0] * SLOTS,
        )
        for rank, own in enumerate(tensors)
    ]
    conditions = NetworkConditions(
        delay_s=40e-6, jitter=0.0, frame_s=1e-6, bits_per_s=1e8, stall_after=STALL_AFTER, stall_s=STALL_S
    )
    network = World(RootSwitches(switch), members, conditions, 1)
    for (total,) in (results[0] for results in network.run(1_000_000)):
        assert np.array_equal(total, sum(tensors))
    stalls = len(network.log) // STALL_AFTER
    assert stalls > 2
    assert sum(member.stats.retransmissions for member in members) <= PROBES * RANKS * stalls
