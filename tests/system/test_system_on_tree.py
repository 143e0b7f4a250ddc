"""The worker's engine against the real P4 program, executed: one switch and trees, whose links are all terrible.

Communicators over two racks, by tests that run over one switch elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from p4reduce.errors import CollectiveMismatchError, CollectiveTimeoutError
from p4reduce.protocol.blocks import Blocks
from p4reduce.protocol.call import Call
from p4reduce.testing.local_group import LocalGroup
from p4reduce.testing.world import NetworkConditions, World
from p4reduce_contracts.wire.calls import Kind
from p4reduce_contracts.wire.geometry import SMALL
from rigs import ranks
from rigs.bit_flips import CORRUPT_SUM, RIGHT, BitFlips
from rigs.pipeline import EPOCH, JOB, SLOT_COUNT
from rigs.scenarios import FIRST_ROUNDS, Scenario, build, network_conditions
from rigs.tree import TREES, Shape, TreeRig, racks
from rigs.tree_group import TreeGroup, TreeSwitch, tree_job
from worker.codecs import test_codecs_wire_formats as formats
from worker.comm import test_comm_collectives as collectives
from worker.comm import test_comm_refusals as refusals
from worker.compressors.test_methods import (
    test_means_are_equal_and_with_the_residues_make_up_the_gradients as means_and_residues,
)
from worker.ddp import test_ddp_nonfinite as nonfinite

NETWORKS: dict[str, Shape] = {"1": [0], "8": list(range(8)), "mixed": [0, [1, 4], [2, [3, 5]]]} | TREES
"""One switch with a rank, one with eight, a tree with ranks beside switches, and trees of racks."""
CALM = NetworkConditions(delay_s=0.0005, jitter=0.1)


class RenewedTree:
    """One tree for all examples: old epochs' leavings stay in its registers, as on real switches."""

    def __init__(self, geometry: str, name: str) -> None:
        self.rig = TreeRig(geometry, NETWORKS[name])
        self.epoch = 0

    def scenario(self, seed: int, **options: object) -> Scenario:
        self.epoch += 1
        self.rig.renew(self.epoch)
        slots = int(options.pop("slots", SLOT_COUNT))  # type: ignore[call-overload]
        return build(
            seed,
            self.rig.world_size,
            self.rig.geometry,
            slots,
            epoch=self.epoch,
            job=JOB,
            levels=self.rig.levels,
            **options,  # type: ignore[arg-type]
        )


@cache
def tree(name: str) -> RenewedTree:
    return RenewedTree("small", name)


@pytest.mark.fault(
    "loss of 0, 5 or 20 %, duplicates, late frames, on every link of one or a tree of compiled switches, with "
    "refusals: retransmitted until it is complete"
)
@pytest.mark.parametrize("name", NETWORKS)
@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    slots=st.integers(1, SLOT_COUNT),
    conditions=network_conditions(drop=0.2, duplicate=0.3),
    first_round=FIRST_ROUNDS,
)
def test_every_rank_ends_with_the_reference_sum(
    *, name: str, seed: int, slots: int, conditions: NetworkConditions, first_round: int
) -> None:
    """Or with the same refusals."""
    renewed = tree(name)
    scenario = renewed.scenario(
        seed,
        slots=slots,
        largest=150,
        first_round=first_round,
        collectives=2 + 3 * (seed % 2),
        refusals=0.2 * (seed % 2),
    )
    scenario.check(World(renewed.rig, scenario.members, conditions, seed).run(1_000_000))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_calm_network_needs_no_retransmission_and_carries_a_round_once(name: str) -> None:
    """The trunk of a rack carries up what one of its ranks sends at most, whatever their number."""
    renewed = tree(name)
    root, children = renewed.rig.switches[0], len(renewed.rig.children[0])
    before = root.job_count("contributions"), root.job_count("results")
    scenario = renewed.scenario(7, collectives=4)
    network = World(renewed.rig, scenario.members, CALM, 1)
    scenario.check(network.run())
    rounds = scenario.members[0].stats.rounds
    assert rounds > 8
    assert all(m.stats.retransmissions == m.stats.stale == m.stats.malformed == 0 for m in scenario.members)
    counted = root.job_count("contributions") - before[0], root.job_count("results") - before[1]
    assert counted == (children * rounds, rounds)
    for number, parent in enumerate(renewed.rig.parents):
        if parent >= 0:
            assert network.frames[number, parent] == network.frames[parent, number] == rounds


@pytest.mark.parametrize(
    ("count", "size", "conditions"),
    [(4, 16, NetworkConditions(drop=0.01, duplicate=0.01, late=0.01)), (3, 32, CALM), (2, 32, CALM)],
)
def test_many_ranks_in_racks_sum_exactly(count: int, size: int, conditions: NetworkConditions) -> None:
    """64 ranks have places of their own in all columns of the opening frame, 96 share places."""
    rig, ranks = TreeRig("default", racks(count, size), epoch=1), count * size
    scenario = build(
        count, ranks, rig.geometry, SLOT_COUNT, epoch=1, job=JOB, levels=rig.levels, collectives=3, largest=1000
    )
    scenario.check(World(rig, scenario.members, conditions, 5).run(2_000_000))


def test_96_ranks_in_racks_each_learn_that_one_calls_another_collective() -> None:
    rig = TreeRig("default", racks(3, 32), epoch=1)
    scenario = build(1, 96, rig.geometry, SLOT_COUNT, epoch=1, job=JOB, levels=rig.levels, collectives=1)
    for rank, member in enumerate(scenario.members):
        member.calls = [(Blocks(), Call(0, Kind.CLOSE if rank == 70 else Kind.BARRIER))]
    with pytest.raises(CollectiveMismatchError, match="rank 70: close .* at least one other rank called another"):
        World(rig, scenario.members, CALM, 1).run()


@pytest.mark.fault(
    "ranks of one rack of a tree never call: CollectiveTimeoutError names them; on other racks, their rack's ranks"
)
@pytest.mark.parametrize(
    ("absent", "text"),
    [
        ({5}, r"switch switch3 still waits for rank 5$|switch root still waits for the switch of ranks 4, 5$"),
        ({4, 5}, r"switch root still waits for the switch of ranks 4, 5$"),
    ],
)
def test_the_error_names_what_is_absent_by_level(absent: set[int], text: str) -> None:
    """On the absent rank's rack by rank, elsewhere by rack."""
    rig = TreeRig("small", racks(3, 2), epoch=1)
    scenario = build(6, 6, rig.geometry, SLOT_COUNT, epoch=1, job=JOB, levels=rig.levels, timeout_s=5.0)
    for rank in absent:
        scenario.members[rank].calls = []
    with pytest.raises(CollectiveTimeoutError, match=text) as caught:
        World(rig, scenario.members, NetworkConditions(), 1).run()
    assert set(caught.value.missing_ranks) in ({5}, {4, 5})


@pytest.mark.fault("a switch below the root is set up as the root: its RESULTs are malformed; CollectiveTimeoutError")
def test_a_leaf_that_is_set_up_as_the_root_gives_no_sum() -> None:
    rig = TreeRig("small", racks(2, 2), epoch=1)
    leaf = rig.switches[1]
    leaf.parent = None
    leaf.renew(1)
    scenario = build(6, 4, rig.geometry, SLOT_COUNT, epoch=1, job=JOB, levels=rig.levels, timeout_s=5.0)
    with pytest.raises(CollectiveTimeoutError):
        World(rig, scenario.members, CALM, 1).run()
    assert scenario.members[0].stats.malformed > 0
    assert not any(member.results for member in scenario.members)


@pytest.mark.fault(
    "a bit flips in a frame, up or down, any part: down and in headers: a lost frame; in blocks going up: "
    "CorruptSumError"
)
def test_a_flipped_bit_never_causes_a_wrong_sum() -> None:
    flips = 1_000
    tried = BitFlips(seed=1)
    tried.run(flips)
    outcomes = tried.outcomes
    assert outcomes.total() == flips
    assert {key[2] for key in outcomes} == {RIGHT, CORRUPT_SUM}
    up = {key[1]: key[2] for key in outcomes if key[0] == "up"}
    assert set(up) == {"Ethernet, IPv4, UDP", "base", "secret", "check", "checksum", "keys", "blocks"}
    assert {key[1] for key in outcomes if key[0] == "down"} == set(up) - {"Ethernet, IPv4, UDP"}
    # Only what reaches the switch's registers ends a job; everything else is a lost frame, and repeated.
    assert {key[:2] for key in outcomes if key[2] == CORRUPT_SUM} == {("up", "blocks")}
    assert outcomes["up", "blocks", RIGHT] == 0, "a flipped bit of a block cannot be right"


@pytest.mark.fault(
    "a bit flips on any link of a tree of switches, in any part of a frame: in blocks going up, to a switch or "
    "between two: CorruptSumError; else a lost frame"
)
@pytest.mark.parametrize("name", ["2x1", "2x2", "2x2x2"])
def test_a_flipped_bit_on_any_link_of_a_tree_never_causes_a_wrong_sum(name: str) -> None:
    flips = 400
    tried = BitFlips(seed=1, shape=TREES[name])
    tried.run(flips)
    outcomes = tried.outcomes
    assert outcomes.total() == flips
    assert {key[2] for key in outcomes} == {RIGHT, CORRUPT_SUM}
    for direction in ("up", "trunk up", "trunk down"):
        parts = {key[1] for key in outcomes if key[0] == direction}
        assert parts == {"Ethernet, IPv4, UDP", "base", "secret", "check", "checksum", "keys", "blocks"}
    assert {key[:2] for key in outcomes if key[2] == CORRUPT_SUM} == {("up", "blocks"), ("trunk up", "blocks")}
    assert not any(outcomes[direction, "blocks", RIGHT] for direction in ("up", "trunk up"))


@pytest.mark.fault(
    "bit 31 of two words of a frame flips, up or down; sums of float32 or in lanes: the check word fits, the "
    "sums are too large: down a lost frame; up: CorruptSumError"
)
@pytest.mark.parametrize(
    ("of", "bit"), [("float32", 31), ("floats16", 31), ("floats8", 31), ("lanes4", 31), ("lanes8", 31), ("lanes8", 28)]
)
def test_a_flipped_high_bit_in_two_words_never_causes_a_wrong_sum(of: str, bit: int) -> None:
    """The check word cannot see bit 31 of two words. Where sums have room, none of them can be that large."""
    tried = BitFlips(seed=1, of=of, same_bit=bit)
    tried.run(100)
    assert {(key[0], key[2]) for key in tried.outcomes} == {("up", CORRUPT_SUM), ("down", RIGHT)}


DTYPES = (torch.float32, torch.bfloat16, torch.float16)

CASES: list[tuple[ModuleType, Callable[..., None], dict[str, Any]]] = [
    *[(formats, formats.test_a_communicator_sums_in_every_format, {"dtype": dtype, "lost": 0.1}) for dtype in DTYPES],
    (collectives, collectives.test_many_segments_in_one_collective, {}),
    (collectives, collectives.test_broadcast_moves_bits, {"root": 2}),
    (collectives, collectives.test_all_gather_of_unequal_bytes, {}),
    (collectives, collectives.test_a_mismatch_is_raised_on_every_rank_and_by_later_calls, {}),
    (refusals, refusals.test_ranks_that_skip_refused_steps_sum_equal_ones_over_empty_slots, {}),
    (refusals, refusals.test_a_refusal_at_another_operation_is_a_mismatch_on_every_rank, {}),
    *[
        (ranks, means_and_residues, {"name": name, "world_size": 4})
        for name in ("adacomp", "adacomp, sum", "adacomp, gather", "adacomp, shared", "quantize", "omnireduce")
    ],
    (nonfinite, nonfinite.test_a_skipped_step_is_skipped_by_all_and_changes_no_state, {"name": "adacomp"}),
]
"""What depends on what a switch adds, gathers and answers: formats, calls, refusals, and a compressor of each form."""


@pytest.mark.parametrize(("module", "test", "arguments"), CASES, ids=lambda given: getattr(given, "__name__", ""))
def test_over_two_racks(
    module: ModuleType, test: Callable[..., None], arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LocalGroup", TreeGroup)
    test(**arguments)


@pytest.mark.fault("an epoch granted twice for the same registers: STALE, and no rank gets a sum of the first job")
@pytest.mark.parametrize("since", ["nothing", "a job that used slot 0 only"])
def test_an_epoch_that_is_granted_twice_gives_no_old_sum(since: str) -> None:
    """Other slots hold rounds of the first job also where slot 0, whose opening round shows the call, does not."""
    job = tree_job(3, SMALL, 4, EPOCH)
    tree = job["switch"]
    assert isinstance(tree, TreeSwitch)

    def grant(first_round: int, slots: int, number: int, epoch: int = EPOCH, timeout_s: float = 60.0) -> list[int]:
        """Let a job whose ranks end without a word add `number` in one block of each column of four slots."""
        tree.tree.renew(epoch)
        leases = [replace(lease, first_round=first_round, slot_count=slots, epoch=epoch) for lease in job["leases"]]
        group = LocalGroup(3, switch=tree, leases=leases, timeout_s=timeout_s)
        try:
            return np.unique(group.run(lambda comm: comm.all_reduce(np.full(128, number, np.int32)))).tolist()
        finally:
            for comm in group.comms:
                comm.close(wait=False)

    assert grant(1 << 31, 4, 7) == [21]
    if since != "nothing":
        assert grant(5, 1, 9, EPOCH + 1) == [27]
    with pytest.raises(CollectiveTimeoutError):
        grant(77, 4, 1000, timeout_s=0.5)
    assert grant(77, 4, 1000, EPOCH + 2) == [3000]
