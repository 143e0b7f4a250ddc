"""Ranks that join again after a reset, those that do not, and the end of one that others still wait for.

Also over switches side by side that the controller loses and finds again. No join and no epoch leaves a connection.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import p4reduce
from p4reduce import Communicator
from p4reduce.errors import CollectiveMismatchError, CommunicatorClosedError, JobResetError, P4ReduceError
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_controller.switches import connection, reconciler
from p4reduce_switch.p4runtime import Server
from rigs.cut_runs import CutGroup, ResettableGroup
from rigs.limits import LIMIT_S, wait_until
from rigs.local_system import LocalSystem, local_system
from rigs.tree_group import CutTree

pytestmark = pytest.mark.usefixtures("small_and_patient")


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
def test_another_process_as_this_rank_is_an_error() -> None:
    def told(comm: Communicator) -> None:
        with pytest.raises(P4ReduceError, match="rank 1 has ended 0 collectives and rank 0 2"):
            comm.barrier()

    with ResettableGroup(2) as group:
        for _ in range(2):
            group.run(Communicator.barrier)
        group.reset()
        group.comms[1].operations = 0
        group.run(told)


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


RANKS = range(2)


def restart_p4runtime(local: LocalSystem, name: str) -> None:
    """The controller finds the switch again."""
    switch = local.switches[name]
    switch.server = Server(switch.switch, switch.address("P4Runtime"))
    switch.server.start()


@pytest.mark.fault(
    "the controller loses one of three switches side by side, later another, while ranks with `rejoin=True` sum: they "
    "go on over the others, and take the first one back in the next epoch"
)
def test_sums_go_on_over_the_switches_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "_LOST_AFTER_S", 0.05)
    monkeypatch.setattr(connection, "LONGEST_PAUSE_S", 0.1)
    with (
        local_system(tmp_path, 2, beside=True) as local,
        JobClient(local.address) as client,
        ThreadPoolExecutor(len(RANKS)) as ranks,
    ):
        client.create_job("train", len(RANKS), 4)

        def join(rank: int) -> Communicator:
            options = {"controller": local.address, "timeout_s": LIMIT_S, "rejoin": True}
            return p4reduce.join("train", rank=rank, world_size=len(RANKS), **options)

        comms = list(ranks.map(join, RANKS))

        def used() -> set[str]:
            """Sum on all ranks, and return the switches that they have then."""
            own = np.arange(5000, dtype=np.int32)
            for total in ranks.map(lambda comm: comm.all_reduce(own), comms):
                np.testing.assert_array_equal(total, own * len(RANKS))
            (names,) = {tuple(each.name for each in comm.lease.switches) for comm in comms}
            return set(names)

        every = set(local.switches)
        first, second, third = sorted(every)
        assert used() == every
        local.switches[first].server.stop()
        wait_until(lambda: used() == {second, third})
        restart_p4runtime(local, first)
        wait_until(lambda: all(each.problem is None for each in client.list_switches()))
        assert used() == {second, third}, "it is taken in the next epoch"
        local.switches[second].server.stop()
        wait_until(lambda: used() == {first, third})
        for comm in comms:
            comm.close()


def held() -> int:
    """Return the number of descriptors, which both ends of each connection are in this process."""
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.fault("a rank joins and leaves, or joins again after resets, many times: no connection stays")
def test_neither_joins_nor_epochs_leave_connections(tmp_path: Path) -> None:
    with local_system(tmp_path) as system, JobClient(system.address) as client:
        client.create_job("train", 1)

        def join() -> p4reduce.Communicator:
            options = {"controller": system.address, "timeout_s": LIMIT_S, "rejoin": True}
            return p4reduce.join("train", rank=0, world_size=1, **options)

        join().close()
        before = held()
        for _ in range(60):
            join().close()
        wait_until(lambda: held() <= before)
        comm = join()
        for _ in range(30):
            system.reset_jobs()
            wait_until(lambda: comm.failure.lost() is not None)
            comm.barrier()
        comm.close()
        wait_until(lambda: held() <= before)
