"""The worker's engine against the real P4 program, executed: one switch and trees, whose links are all terrible."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p4reduce.errors import CollectiveMismatchError, CollectiveTimeoutError
from p4reduce.protocol.blocks import Blocks
from p4reduce.protocol.call import Call, Kind
from p4reduce.testing.world import NetworkConditions, World
from rigs.bit_flips import CORRUPT_SUM, RIGHT, BitFlips
from rigs.pipeline import JOB, SLOT_COUNT
from rigs.scenarios import FIRST_ROUNDS, Scenario, build, network_conditions
from rigs.tree import TREES, Shape, TreeRig, racks

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
