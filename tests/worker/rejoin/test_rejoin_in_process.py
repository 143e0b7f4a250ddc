"""Ranks that join again after a reset, those that do not, and the end of one that others still wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from p4reduce import Communicator
from p4reduce.errors import CollectiveMismatchError, CommunicatorClosedError, JobResetError, P4ReduceError
from p4reduce.membership import rejoin
from p4reduce.testing.resettable_group import ResettableGroup
from rigs.cut_runs import CutGroup
from rigs.tree_group import CutTree


@pytest.fixture(autouse=True)
def hurried_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that alone missed the end of the last exchange does not wait."""
    monkeypatch.setattr(rejoin, "CLOSE_PATIENCE_S", 0.5)


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
        group.comms[1].failure.recovery = None

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
