"""Ranks that join again: every place at which a reset can cut a run gives the sums of an undisturbed one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from p4reduce import Communicator
from p4reduce.errors import CollectiveMismatchError, CommunicatorClosedError, JobResetError, P4ReduceError
from p4reduce.membership import rejoin
from p4reduce.membership.resync import CollectiveOutcome, ResyncedCollective
from p4reduce.protocol.blocks import Blocks
from p4reduce.protocol.call import Call
from p4reduce.testing.local_group import LocalGroup
from p4reduce.testing.resettable_group import ResettableGroup
from p4reduce_contracts.wire import SMALL
from rigs.cut_runs import CutGroup, run, run_and_close, same
from rigs.tree_group import CutTree


@pytest.fixture(autouse=True)
def hurried_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that alone missed the end of the last exchange does not wait."""
    monkeypatch.setattr(rejoin, "CLOSE_PATIENCE_S", 0.5)


@pytest.fixture(scope="module")
def undisturbed() -> list[list[Any]]:
    with LocalGroup(2, geometry=SMALL, slots=4) as group:
        return group.run(run)


@pytest.mark.fault(
    "a reset instead of any one answer of the switch, ranks with `rejoin=True`: every rank gets the sums of an "
    "undisturbed run, whichever ranks had the last answer"
)
@pytest.mark.parametrize("cut_group", [CutGroup, CutTree])
def test_a_reset_at_any_point_changes_no_sum(
    undisturbed: list[list[Any]], monkeypatch: pytest.MonkeyPatch, cut_group: type[CutGroup]
) -> None:
    caught_up = []

    def noted(call: Call, source: Blocks, outcome: CollectiveOutcome) -> ResyncedCollective:
        caught_up.append("refused" if outcome.refusals else call.kind.name)
        return ResyncedCollective(call, source, outcome)

    monkeypatch.setattr(rejoin, "ResyncedCollective", noted)
    with cut_group(2, set()) as group:
        assert all(same(a, b) for a, b in zip(group.run(run), undisturbed, strict=True))
        answers = group.answers
    assert answers > 40
    for cut in range(answers):
        with cut_group(2, {cut}) as group:
            found = group.run(run_and_close)
            assert all(same(a, b) for a, b in zip(found, undisturbed, strict=True)), f"cut at answer {cut}"
            assert group.epoch > 7 and not group.cuts
    assert set(caught_up) == {"ALL_REDUCE", "BROADCAST", "BARRIER", "ALL_GATHER", "refused"}, "some fell between ranks"


@pytest.mark.fault(
    "12 resets a run, also while ranks with `rejoin=True` rejoin: every rank gets the sums of an undisturbed run"
)
@pytest.mark.parametrize(
    ("cut_group", "seed"), [*((CutGroup, seed) for seed in range(15)), *((CutTree, seed) for seed in range(5))]
)
def test_many_resets_also_during_recovery(seed: int, cut_group: type[CutGroup]) -> None:
    random = np.random.default_rng(seed)
    cuts = set(np.cumsum(random.integers(1, 25, 12)).tolist())
    with LocalGroup(3, geometry=SMALL, slots=4) as group:
        wanted = group.run(run)
    with cut_group(3, cuts) as group:
        found = group.run(run_and_close)
        assert all(same(a, b) for a, b in zip(found, wanted, strict=True))
        assert group.epoch >= 10


def test_a_rank_that_was_computing_rejoins_in_its_next_call() -> None:
    with ResettableGroup(2) as group:
        group.run(Communicator.barrier)
        group.reset()
        group.comms[0].check()  # without any action
        ones = np.ones(5, np.int32)
        late = threading.Timer(0.3, lambda: results.append(group.comms[1].all_reduce(ones)))
        results: list[Any] = []
        late.start()
        assert (group.comms[0].all_reduce(ones) == 2).all()
        late.join()
        assert (results[0] == 2).all()


def test_a_requested_reset_is_an_error_at_once() -> None:
    with ResettableGroup(2) as group:
        group.run(Communicator.barrier)
        group.reset("rank 1 left")
        with pytest.raises(JobResetError, match="rank 1 left"):
            group.comms[0].barrier()
        with pytest.raises(JobResetError, match="rank 1 left"):
            group.comms[0].check()


@pytest.mark.fault("ranks that do not rejoin: JobResetError that names them")
def test_ranks_that_do_not_rejoin_in_time_are_named() -> None:
    with ResettableGroup(2, rejoin_s=0.2) as group:
        group.reset()
        with pytest.raises(JobResetError, match="the switch restarted") as caught:
            group.comms[0].barrier()
        assert "rank 0 could not join in" in str(caught.value.__notes__)
        with pytest.raises(JobResetError):
            group.comms[0].check()


@pytest.mark.fault("another process as a rank that others wait for: an error on all ranks")
def test_another_process_as_this_rank_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def error(call: Callable[[Communicator], Any]) -> Callable[[Communicator], str]:
        def told(comm: Communicator) -> str:
            with pytest.raises(P4ReduceError) as caught:
                call(comm)
            return str(caught.value)

        return told

    with ResettableGroup(2) as group:
        for _ in range(2):
            group.run(Communicator.barrier)
        group.reset()
        group.comms[1].operations = 0
        texts = group.run(error(Communicator.barrier))
        assert all("rank 1 has ended 0 collectives and rank 0 2" in text for text in texts)


def test_ranks_of_which_only_some_join_again_get_an_error() -> None:
    with ResettableGroup(2) as group:
        group.comms[1].recovery = None

        def told(comm: Communicator) -> None:
            with pytest.raises(CollectiveMismatchError):
                comm.barrier()

        group.run(told)


def test_closing_ends_the_wait_for_the_others() -> None:
    with ResettableGroup(2) as group:
        group.run(Communicator.barrier)
        group.reset()
        threading.Timer(0.2, lambda: group.comms[0].close(wait=False)).start()
        with pytest.raises(CommunicatorClosedError):
            group.comms[0].barrier()


@pytest.mark.parametrize("cut_group", [CutGroup, CutTree])
def test_a_rank_that_closes_syncs_the_lagging_ranks(cut_group: type[CutGroup]) -> None:
    """The last answer reaches rank 0 alone, which goes home."""
    ones = np.ones(3, np.int32)
    with cut_group(2, set()) as group:
        group.run(lambda comm: comm.all_reduce(ones))
        last = group.answers
        group.run(lambda comm: comm.all_reduce(ones))
        group.cuts = {2 * group.answers - last - 1}  # the last answer of a collective like that

        def end(comm: Communicator) -> Any:
            total = comm.all_reduce(ones * (comm.rank + 1))
            comm.close()
            return total

        assert [total.tolist() for total in group.run(end)] == [[3, 3, 3]] * 2
        assert not group.cuts
