"""Whatever the network does, every rank ends with the same, right bits.

No RESULT outgrows the frame it answers by more than BMv2 has room for; the zeros this takes change no sum.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p4reduce.testing.local_group import LocalGroup
from p4reduce.testing.reference_switch import ReferenceSwitch
from p4reduce.testing.world import NetworkConditions, RootSwitches, World
from p4reduce_contracts.wire.frames import Frame, unpack
from p4reduce_contracts.wire.geometry import DEFAULT, SMALL, Geometry
from rigs.scenarios import EPOCH, FIRST_ROUNDS, JOB, build, network_conditions
from rigs.secret import rank_secrets


def reference(geometry: Geometry, world_size: int, slots: int, number: int = 0) -> ReferenceSwitch:
    switch = ReferenceSwitch(geometry, slots + 2)
    secrets = [number << 32 ^ secret for secret in rank_secrets(world_size)]
    switch.add_job(JOB, EPOCH, world_size, slot_base=2, slot_count=slots, secrets=secrets)
    return switch


@pytest.mark.fault(
    "loss of 0, 5 or 20 %, duplicates, late frames, with refusals, over the reference switch: retransmitted "
    "until it is complete"
)
@pytest.mark.slow
@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    world_size=st.integers(1, 8),
    slots=st.integers(1, 6),
    conditions=network_conditions(),
    first_round=FIRST_ROUNDS,
    geometry=st.sampled_from([SMALL, Geometry(8, 4), Geometry(1, 32)]),
    refusals=st.sampled_from([0.0, 0.2]),
    switches=st.integers(1, 4),
)
def test_every_rank_ends_with_the_reference_sum(
    *,
    seed: int,
    world_size: int,
    slots: int,
    conditions: NetworkConditions,
    first_round: int,
    geometry: Geometry,
    refusals: float,
    switches: int,
) -> None:
    """Or with the same refusals: those change nothing of the collectives before and after them."""
    count = 8 if refusals else 3
    scenario = build(
        *(seed, world_size, geometry, slots),
        largest=200,
        first_round=first_round,
        collectives=count,
        refusals=refusals,
        switches=switches,
    )
    roots = RootSwitches(*(reference(geometry, world_size, slots, number) for number in range(switches)))
    network = World(roots, scenario.members, conditions, seed)
    scenario.check(network.run())


@pytest.mark.slow
def test_retransmissions_are_byte_identical() -> None:
    scenario = build(3, 3, SMALL, 4, first_round=2**32 - 3)
    network = World(RootSwitches(reference(SMALL, 3, 4)), scenario.members, NetworkConditions(0.3, 0.2, 0.1), 11)
    scenario.check(network.run())
    sent: dict[tuple[int, int, int], bytes] = {}
    for rank, payload in network.log:
        frame = unpack(SMALL, payload)
        assert sent.setdefault((rank, frame.slot, frame.round), payload) == payload
    assert len(sent) < len(network.log)
    assert sum(m.stats.retransmissions for m in scenario.members) == len(network.log) - len(sent)


@pytest.mark.fault("round numbers wrap: nothing")
@pytest.mark.slow
def test_rounds_go_on_across_collectives_and_wrap() -> None:
    scenario = build(8, 2, SMALL, 2, collectives=5, first_round=2**32 - 4)
    starts = list(scenario.members[0].rounds)
    network = World(RootSwitches(reference(SMALL, 2, 2)), scenario.members, NetworkConditions(0.1, 0.1, 0.1), 3)
    scenario.check(network.run())
    ends = scenario.members[0].rounds
    assert ends == scenario.members[1].rounds
    steps = [(end - start) & 0xFFFFFFFF for start, end in zip(starts, ends, strict=True)]
    assert sum(steps) == scenario.members[0].stats.rounds
    assert ends[0] < starts[0]


@pytest.mark.parametrize(
    ("expected", "own", "sent"),
    [(0xFF, *both) for both in ((0xFF, 0xFF), (0x0F, 0x0F), (0x07, 0x0F), (0x00, 0x0F))]
    + [(0xF1, 0x10, 0x10), (0x1F, 0x00, 0x01)],
)
def test_only_as_many_zeros_as_needed_and_at_their_columns(expected: int, own: int, sent: int) -> None:
    """One slot; rank 1 holds the columns of `own`, rank 0 those of `expected`."""
    columns, frames = np.arange(DEFAULT.columns), dict[int, Frame]()
    tensors = [np.repeat(mask >> columns & 1, DEFAULT.block_words).astype(np.int32) for mask in (expected, own)]

    def note(rank: int, payload: bytes) -> bool:
        frame = unpack(DEFAULT, payload)
        if frame.round == 1:  # after the opening round
            frames[rank] = frame
        return False

    with LocalGroup(2, lose=note) as group:  # whose switch fails where a RESULT has no room in BMv2
        for result in group.run(lambda comm: comm.all_reduce(tensors[comm.rank])):
            assert np.array_equal(result, tensors[0] + tensors[1])
    assert (frames[0].present, frames[1].present) == (expected, sent)
    blocks = np.frombuffer(frames[1].blocks, ">i4").reshape(-1, DEFAULT.block_words)
    assert blocks.tolist() == [[own >> column & 1] * DEFAULT.block_words for column in columns if sent >> column & 1]
