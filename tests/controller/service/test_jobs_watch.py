"""The watch: who lives while it is open, who is gone when it ends, and how soon the others hear of it."""

from __future__ import annotations

import contextlib
import gc
import os
import queue
import signal
import tempfile
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TextIO

import pytest

from p4reduce_contracts.jobs import jobs_pb2
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import PlaceTakenError
from p4reduce_controller.registry.registry import RECONNECT_S, SINGLE_EPOCH_RECONNECT_S
from rigs.fake_switch_client import Running, create_and_form, form
from rigs.fork_server import Forked, program_server
from rigs.limits import LIMIT_S, wait_until
from rigs.system import System

Reasons = queue.SimpleQueue  # of the resets that a watch told


def watched(running: Running, count: int) -> None:
    """Return when `count` watches of job "train" are open."""
    members = running.controller.registry.get("train").members
    wait_until(lambda: running.call(lambda: sum(member.watching for member in members.values())) == count)


@pytest.fixture
def second(running: Running) -> Iterator[JobClient]:
    """The client of another process: a connection of its own."""
    with JobClient(f"localhost:{running.address.rpartition(':')[2]}") as one:
        yield one


def test_a_watch_of_a_void_lease_is_a_reset(client: JobClient) -> None:
    reasons: Reasons[str] = queue.SimpleQueue()
    watch = client.watch(12345)
    watch._thread.join(LIMIT_S)
    watch.attach(reasons.put)
    assert "has no such member" in reasons.get(timeout=LIMIT_S)
    watch.close()


def test_a_member_stays_while_its_watch_is_open(running: Running, client: JobClient, second: JobClient) -> None:
    tickets, _ = create_and_form(running, client, "train", 2)
    client.watch(tickets[0].nonce, print)
    second.watch(tickets[1].nonce, print)
    watched(running, 2)
    running.pass_time(1000.0)
    assert client.get_job("train").state == "ACTIVE", "no heartbeat is needed"
    with pytest.raises(
        PlaceTakenError, match=r"rank 1 of job train is held by another worker at 10\.0\.0\.11:4001: end"
    ):
        client.join("train", 1, 2)
    assert client.get_job("train").state == "ACTIVE"


@pytest.mark.fault(
    "a member of a group that changes its members ends: its job ends 0.1 s later, and its slots are free"
)
@pytest.mark.parametrize("single_epoch", [False, True])
def test_a_member_whose_connection_ends_is_dropped_and_the_others_are_notified(
    running: Running, client: JobClient, second: JobClient, single_epoch: bool
) -> None:
    free, within_s = client.list_jobs().free_slots, SINGLE_EPOCH_RECONNECT_S if single_epoch else RECONNECT_S
    client.create_job("train", 2, free, ephemeral=single_epoch, single_epoch=single_epoch)
    tickets, _ = form(running, client, "train", 2)
    reasons: Reasons[str] = queue.SimpleQueue()
    watch = client.watch(tickets[0].nonce, reasons.put)
    second.watch(tickets[1].nonce, print)
    watched(running, 2)
    second.close()
    watched(running, 1)
    running.pass_time(0.9 * within_s)
    assert client.get_job("train").state == "ACTIVE", "it may connect again"
    running.pass_time(0.1 * within_s)
    assert reasons.get(timeout=LIMIT_S) == "rank 1 is gone: its connection to the controller ended"
    if single_epoch:
        assert client.create_job("next", 1, free).slots == free
    else:
        client.join("train", 1, 2)
    watch.close()


@pytest.mark.fault("a rank ends on a busy machine, after gRPC's threads: its process ends too")
def test_a_closed_watch_leaves_no_call_for_the_end_of_the_interpreter(running: Running, client: JobClient) -> None:
    tickets, _ = create_and_form(running, client, "train", 1)
    gc.disable()
    try:
        watch = client.watch(tickets[0].nonce, print)
        watched(running, 1)
        with watch._lock:  # it is held until the call that the controller has seen is noted
            assert watch._stream is not None
            call = weakref.ref(watch._stream)
        watch.close()
        watch._thread.join(LIMIT_S)
        assert call() is None
    finally:
        gc.enable()


@pytest.mark.fault("a worker's connection to the controller breaks for less than 1 s: nothing")
@pytest.mark.parametrize("sign", ["watch", "heartbeat"])
def test_a_member_that_reconnects_is_not_dropped(
    running: Running, client: JobClient, second: JobClient, sign: str
) -> None:
    tickets, _ = create_and_form(running, client, "train", 1)
    second.watch(tickets[0].nonce, print)
    watched(running, 1)
    second.close()
    watched(running, 0)
    if sign == "watch":
        watch = client.watch(tickets[0].nonce, print)
        watched(running, 1)
    else:
        client.heartbeat(tickets[0].nonce)
    running.pass_time(2 * RECONNECT_S)
    assert client.get_job("train").state == "ACTIVE"
    if sign == "watch":
        watch.close()


@pytest.mark.fault(
    "SIGKILL of a rank that waits for the others: its rank is free 1 s later; restarted ranks form the job"
)
def test_a_waiting_rank_that_is_killed_is_dropped(running: Running, client: JobClient, second: JobClient) -> None:
    client.create_job("train", 2)
    ticket = second.join("train", 0, 2, "a restart 0")
    request = jobs_pb2.WaitLeaseRequest(nonce=ticket.nonce, timeout_s=LIMIT_S)
    call = second._stub.WaitLease.future(request, timeout=LIMIT_S)
    running.wait_for_waiters(running.controller.registry.get("train").members, 1)
    call.cancel()
    running.wait_for_waiters(running.controller.registry.get("train").members, 0)
    running.pass_time(RECONNECT_S)
    client.join("train", 0, 2, "a restart 1")


RANK = """
import ctypes, sys, time
import p4reduce
comm = p4reduce.join("train", rank=int(sys.argv[1]), world_size=2, controller=sys.argv[2])
print("joined", flush=True)
{}
time.sleep(3600)
"""
SAY_WHY = """
(heartbeat,) = sys.modules["p4reduce.membership.join"]._heartbeats.values()
while heartbeat.failure() is None: time.sleep(0.01)
print(heartbeat.failure(), flush=True)
"""


class Rank(NamedTuple):
    process: Forked
    output: TextIO


Start = Callable[[int, str], Rank]
FORKS = """
import multiprocessing, os, threading
import numpy as np
os.setsid()
limit = threading.Timer(300, os.killpg, (0, 9))  # where a pool waits for its children for ever
limit.daemon = True
limit.start()
fork = multiprocessing.get_context("fork")

def block():
    for _ in range(2): libc.pthread_mutex_lock(mutex)  # a signal does not interrupt it

libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
statuses = set()
for _ in range(10):
    with fork.Pool(2) as pool:
        pool.map(abs, [1, -1])
    child = fork.Process(target=block)
    child.start()
    child.terminate()
    child.join(60)
    statuses.add(child.exitcode)
    child.kill()
    comm.all_reduce(np.ones(4, np.float32))
print(statuses, flush=True)
"""


@pytest.fixture
def start(system: System, tmp_path: Path) -> Iterator[Start]:
    """Starts a rank of job "train" in a process of its own, with what it does once it has joined."""
    with contextlib.ExitStack() as stack:

        def begin(rank: int, then: str) -> Rank:
            script = Path(tempfile.mkdtemp(dir=tmp_path), "rank.py")
            script.write_text(RANK.format(then), encoding="utf-8")
            reading, writing = os.pipe()
            output = stack.enter_context(open(reading))
            arguments = (str(script), str(rank), system.controller.address("jobs on"))
            with open(writing, "w") as to_output, script.with_suffix(".log").open("w") as errors:
                process = program_server().spawn(to_output, errors, *arguments, environment=os.environ)
            return Rank(stack.enter_context(process), output)

        yield begin


def line(rank: Rank) -> str:
    return rank.output.readline().strip()


@pytest.mark.fault('SIGKILL of a worker: JobResetError on the others, "rank 1 is gone"; a new launch forms at once')
@pytest.mark.fault('SIGTERM of a worker: it leaves; JobResetError on the others, "rank 1 left"')
def test_the_end_of_a_process_is_detected(system: System, start: Start) -> None:
    """Members may be silent for 60 s here, so it is not the silence that is noticed."""
    reasons = {signal.SIGKILL: "rank 1 is gone: its connection to the controller ended", signal.SIGTERM: "rank 1 left"}
    with JobClient(system.controller.address("jobs on")) as client:
        for number, reason in reasons.items():
            client.create_job("train", 2)
            stays, ends = start(0, SAY_WHY), start(1, "")
            assert (line(stays), line(ends)) == ("joined", "joined")
            ends.process.send_signal(number)
            assert reason in line(stays)
            assert ends.process.wait(LIMIT_S) == -number
            client.remove_job("train")


@pytest.mark.fault("SIGTERM of a forked child of a rank, in fork() or in a lock: the child ends, the job goes on")
def test_forked_children_can_be_terminated(system: System, start: Start) -> None:
    """The interpreter drops a signal that comes while it forks, and runs no handler while its thread is in a lock."""
    with JobClient(system.controller.address("jobs on")) as client:
        client.create_job("train", 2)
        ranks = [start(rank, FORKS) for rank in range(2)]
        assert [line(rank) for rank in ranks] == ["joined"] * 2
        assert [line(rank) for rank in ranks] == [f"{{{-signal.SIGTERM}}}"] * 2
        assert client.get_job("train").last_reset is None


@pytest.mark.fault(
    "a worker holds the interpreter for longer than its heartbeat timeout: nothing: its connection answers pings "
    "without the interpreter"
)
@pytest.mark.slow
def test_a_member_that_holds_the_interpreter_is_not_dropped(system: System, start: Start) -> None:
    """The controller's pings have four fifths of the timeout for an answer."""
    system.controller.end()
    system.start_controller(heartbeat_timeout_s=5)
    with JobClient(system.controller.address("jobs on")) as client:
        client.create_job("train", 2)
        first = start(0, "")
        second = start(1, "ctypes.PyDLL(None).sleep(7); print('released', flush=True)")
        assert (line(first), line(second)) == ("joined", "joined")
        assert line(second) == "released"
        job = client.get_job("train")
        assert (job.state, job.last_reset) == ("ACTIVE", None)
