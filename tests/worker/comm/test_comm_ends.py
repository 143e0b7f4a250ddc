"""How calls end when something comes in between: another thread, close(), a reset, a fork."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from p4reduce import Communicator, collective_queue, communicator
from p4reduce.collective_queue import CollectiveFuture
from p4reduce.epoch import EpochMembership
from p4reduce.errors import (
    CollectiveError,
    CollectiveTimeoutError,
    CommunicatorClosedError,
    ForkedProcessError,
    JobResetError,
)
from p4reduce.membership.rejoin import enter_epoch
from p4reduce.pytorch.ddp import DDPState
from p4reduce.testing.local_group import LocalGroup
from rigs.buckets import Bucket
from rigs.limits import LIMIT_S, wait_until


class Busy:
    """Rank 0 of two; `start()` has another thread of it in a barrier that rank 1 does not come to."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.group = LocalGroup(2, lose=self.watch)
        self.comm = self.group.comms[0]
        self.pool = ThreadPoolExecutor(1)

    def watch(self, rank: int, payload: bytes) -> bool:
        self.begun.set()
        return False

    def start(self) -> None:
        self.barrier = self.pool.submit(self.comm.barrier, timeout_s=LIMIT_S)
        assert self.begun.wait(LIMIT_S)


@pytest.fixture
def busy() -> Iterator[Busy]:
    busy = Busy()
    busy.start()
    yield busy
    for comm in busy.group.comms:
        comm.close(wait=False)
    busy.pool.shutdown()


def test_the_deadline_holds_while_another_thread_runs_a_collective(busy: Busy) -> None:
    with pytest.raises(
        CollectiveTimeoutError, match="barrier could not begin in 0.1 s: another collective of this process"
    ):
        busy.comm.barrier(timeout_s=0.1)
    assert not busy.barrier.done()
    busy.group.comms[1].barrier()
    busy.barrier.result(LIMIT_S)  # the other thread's was not disturbed
    busy.group.run(Communicator.barrier)


@pytest.mark.parametrize("wait", [True, False])
def test_close_ends_a_running_collective(busy: Busy, wait: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(communicator, "CLOSE_TIMEOUT_S", 0.1)
    busy.comm.close(wait=wait)
    with pytest.raises(CommunicatorClosedError):
        busy.barrier.result(LIMIT_S)


def test_close_logs_nothing_where_other_ranks_are_late(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(communicator, "CLOSE_TIMEOUT_S", 0.1)
    with LocalGroup(2) as group:
        group.comms[0].close()
        assert "communicator failed" not in caplog.messages


def test_an_interrupted_waiting_call_does_not_block_the_next(busy: Busy, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt  # after the turn was taken, before anything was sent

    monkeypatch.setattr(busy.comm.failure, "membership", Mock(failure=interrupt))
    busy.group.comms[1].barrier()
    busy.barrier.result(LIMIT_S)
    with pytest.raises(KeyboardInterrupt):
        busy.comm.barrier()
    monkeypatch.undo()
    busy.group.run(Communicator.barrier)


def membership_of(*answers: Callable[[], CollectiveError | None]) -> Mock:
    """Return a membership that does something of the test's while it is asked, once each."""
    left = [*answers]
    return Mock(failure=lambda: left.pop(0)() if left else None)


@pytest.mark.parametrize("answer", [None, JobResetError("rank 1 left")])
def test_close_during_a_check_stays_the_communicators_error(comm: Communicator, answer: JobResetError | None) -> None:
    def close() -> JobResetError | None:
        comm.close(wait=False)  # as another thread may, at this moment
        return answer

    comm.failure.membership = membership_of(close)
    for _ in range(2):
        with pytest.raises(CommunicatorClosedError):
            comm.check()


def test_a_sum_that_has_arrived_is_handed_out_despite_a_reset() -> None:
    with LocalGroup(2) as group:
        comm = group.comms[0]
        inbox: queue.SimpleQueue[bytes] = group.inboxes[0]

        def reset() -> JobResetError:
            inbox.put(inbox.get(timeout=LIMIT_S))  # the last RESULT is here
            return JobResetError("rank 1 left")

        comm.failure.membership = membership_of(lambda: None, reset)
        group.run(Communicator.barrier)
        with pytest.raises(JobResetError):
            comm.barrier()
        group.comms[1].close(wait=False)


def test_the_slot_waited_for_can_be_read_from_another_thread(busy: Busy) -> None:
    running = busy.comm
    wait_until(lambda: (wait := running.waiting()) is not None and wait.missing)  # after the PENDING of a repeat
    wait = running.waiting()
    assert wait is not None
    assert (wait.slot, wait.missing_children, wait.in_flight) == (0, (1,), 1)
    assert wait.round == busy.comm.path.slot_rounds[0]
    assert wait.waited_s > 0
    busy.group.comms[1].barrier()
    busy.barrier.result(LIMIT_S)
    assert running.waiting() is None


@pytest.mark.parametrize("closed", [False, True])
def test_a_new_membership_that_cannot_be_used_is_released(
    comm: Communicator, closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, before, transport = Mock(), comm.lease, comm.over_switch.transport
    if closed:
        comm.close()
    else:
        without = Mock(side_effect=OSError("no descriptor is left"))
        monkeypatch.setattr("p4reduce.paths.switch.SwitchPath.__init__", without)
    with pytest.raises(CommunicatorClosedError if closed else OSError):
        enter_epoch(comm, EpochMembership(replace(before, epoch=before.epoch + 1), place, place))
    place.close.assert_called()
    place.leave.assert_called()
    assert (comm.lease, comm.over_switch.transport) == (before, transport)


@pytest.mark.fault(
    "a forked child calls its parent's communicator: ForkedProcessError in the child; the parent continues"
)
def test_a_forked_child_is_refused(comm: Communicator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child is recognised by the number of its process."""
    ones, parent = torch.ones(3), os.getpid()
    begun = CollectiveFuture(lambda: None)
    state = DDPState(comm)
    calls: list[Callable[[], object]] = [
        lambda: comm.all_reduce(np.ones(3, np.float32)),
        lambda: comm.refuse(ValueError("mine")),
        comm.check,
        comm.close,
        begun.result,
        lambda: state.reduce(Bucket(0, ones, ones, last=True)),  # type: ignore[arg-type]
        state.close,
    ]
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: parent + 1)
        child.setattr(collective_queue, "_process", parent + 1)
        for call in calls:
            with pytest.raises(ForkedProcessError, match=f"of process {parent}, .*as a rank of its own"):
                call()
    assert comm.all_reduce(np.ones(3, np.float32)).tolist() == [1, 1, 1]
    state.close()
