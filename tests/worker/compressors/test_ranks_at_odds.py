"""Ranks that differ all get an error; a step that fails leaves no trace, and goes well when it is tried again."""

from __future__ import annotations

import pytest
import torch

from p4reduce.communicator import Communicator
from p4reduce.compressors import AdaComp, Compressor, OmniReduce
from p4reduce.compressors.all_reduce import all_reduce_compressed
from p4reduce.errors import CollectiveMismatchError, CollectiveTimeoutError, InvalidTensorError
from p4reduce.testing.in_process import exchange_all, groups
from p4reduce.testing.local_group import LocalGroup
from p4reduce_contracts.wire.lanes import narrowest
from rigs.limits import LIMIT_S
from rigs.ranks import MAKERS, equal, gradients_of, over_switch

FAMILIES = (
    "adacomp, gather",
    "adacomp, sum",
    "adacomp, sum in levels",
    "adacomp, shared in 8 bits",
    "scalecom, 32 bits",
    "omnireduce, 8 bits",
)
BEFORE = 3
"""Steps until something goes wrong."""
ABSENT_S, LOST_S = 0.3, 3.0
"""Timeouts of a group no collective of which can succeed, and of one whose first does."""


def source(rank: int, step: int) -> dict[str, torch.Tensor]:
    found = gradients_of(rank, step)
    return {"conv.weight": found["conv.weight"], "fc.bias": found["fc.bias"], "fc.weight": found["fc.weight"]}


def settled(name: str) -> list[Compressor]:
    """Two ranks after BEFORE steps."""
    compressors = [MAKERS[name]() for _ in range(2)]
    for step in range(BEFORE):
        exchange_all(compressors, [source(rank, step) for rank in range(2)], groups(2))
    return compressors


def check_that_they_go_on(compressors: list[Compressor], name: str) -> None:
    """The failed step, once more over a new communicator, gives what it gives ranks that nothing happened to."""
    others = settled(name)
    for compressor, other in zip(compressors, others, strict=True):
        assert equal(compressor.state_dict(), other.state_dict())
    steps = range(BEFORE, BEFORE + 2)
    both = (over_switch(each, source, steps) for each in (compressors, others))
    for found, expected in zip(*both, strict=True):
        for (outcome, _), (other, _) in zip(found, expected, strict=True):
            assert equal(outcome.means, other.means)
    for compressor, other in zip(compressors, others, strict=True):
        assert equal(compressor.state_dict(), other.state_dict())


@pytest.mark.fault("no frame arrives until the deadline: CollectiveTimeoutError; a compressor's state is unchanged")
@pytest.mark.parametrize(
    ("name", "collective"),
    [*((name, 0) for name in FAMILIES), ("adacomp, shared in 8 bits", 1), ("scalecom, 32 bits", 1)],
)
def test_frames_lost_until_the_deadline_change_no_state(name: str, collective: int) -> None:
    """The frames are one rank's, in the first or second collective of the step."""
    compressors = settled(name)

    def rank_main(comm: Communicator) -> None:
        with pytest.raises(CollectiveTimeoutError):
            all_reduce_compressed(comm, compressors[comm.rank], source(comm.rank, BEFORE))

    def lose(rank: int, payload: bytes) -> bool:
        return rank == 1 and group.comms[0].stats.collectives >= collective

    with LocalGroup(2, timeout_s=LOST_S if collective else ABSENT_S, lose=lose) as group:
        group.run(rank_main)
        assert all(comm.stats.collectives == collective + 1 for comm in group.comms)
    check_that_they_go_on(compressors, name)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_later_parameter_that_is_refused_leaves_the_earlier_ones_as_they_were(name: str) -> None:
    compressors = settled(name)

    def rank_main(comm: Communicator) -> int:
        given = {**source(comm.rank, BEFORE), "fc.weight": torch.ones(7, 7)}
        with pytest.raises(InvalidTensorError, match=r"gradient of 'fc\.weight' has 49 elements, its residue 1200"):
            all_reduce_compressed(comm, compressors[comm.rank], given)
        return comm.stats.blocks_up

    with LocalGroup(2) as group:
        assert group.run(rank_main) == [0, 0]
    check_that_they_go_on(compressors, name)


def test_loading_a_state_discards_what_a_failed_step_left() -> None:
    """Here that of a warm-up step, which keeps nothing back itself."""
    compressor = AdaComp(form="gather", warmup_steps=2)
    start = compressor.state_dict()
    for step in range(2):
        exchange_all([compressor], [source(0, step)], groups(1))
    with LocalGroup(2, timeout_s=ABSENT_S) as group, pytest.raises(CollectiveTimeoutError):
        all_reduce_compressed(group.comms[0], compressor, source(0, 2))
    compressor.load_state_dict(start)
    exchange_all([compressor], [source(0, 0)], groups(1))
    assert compressor.residue_norm() == 0


def told(compressors: list[Compressor], step: int) -> list[str]:
    """The error of each rank; all of them have to have one."""

    def rank_main(comm: Communicator) -> str:
        with pytest.raises(CollectiveMismatchError) as caught:
            all_reduce_compressed(comm, compressors[comm.rank], source(comm.rank, step))
        return str(caught.value)

    with LocalGroup(len(compressors), timeout_s=LIMIT_S) as group:
        return group.run(rank_main)


def test_ranks_with_different_levels_get_an_error() -> None:
    """Both fill lanes of four bits: what travels looks alike."""
    compressors: list[Compressor] = [AdaComp(form="sum", levels=levels) for levels in (3, 3, 2)]
    compressors[1].check(groups(3)[1])
    assert narrowest(2, 3) == narrowest(2, 2)
    assert all("the ranks called different collectives" in text for text in told(compressors[1:], 0))
    assert all("the ranks called different collectives" in text for text in told(compressors, 0))


@pytest.mark.parametrize("name", FAMILIES)
def test_ranks_with_states_of_different_steps_get_an_error_in_a_fixed_form(name: str) -> None:
    compressors = settled(name)
    earlier = compressors[1].state_dict()
    exchange_all(compressors, [source(rank, BEFORE) for rank in range(2)], groups(2))
    compressors[1].load_state_dict(earlier)
    assert all("the ranks called different collectives" in text for text in told(compressors, BEFORE + 1))


def test_ranks_with_different_scales_get_an_error() -> None:
    compressors = settled("adacomp, sum")
    state = compressors[1].state_dict()
    state["scales"]["fc.weight"] *= 1 + 2**-20
    compressors[1].load_state_dict(state)
    assert all("the ranks called different collectives" in text for text in told(compressors, BEFORE))


def test_different_compressors_are_an_error() -> None:
    assert len(told([AdaComp(form="gather"), OmniReduce()], 0)) == 2
