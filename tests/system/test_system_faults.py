"""Faults that the running system holds out: real switch and controller, ranks as threads, sums checked bit for bit."""

from __future__ import annotations

import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

import p4reduce
from p4reduce_contracts.jobs import lease
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_switch.trace import trace_pb2 as pb
from p4reduce_switch.trace import trace_pb2_grpc
from rigs.limits import LIMIT_S, wait_until
from rigs.survivors import RANKS, Steps, begin, ranks_of
from rigs.system import KILLED, System

TRACES = 30


@pytest.mark.fault(
    "SIGKILL of controller and switch without a restart, during a collective: ControllerLostError interrupts it"
)
@pytest.mark.fault("the switch is stopped (SIGSTOP): the collective waits, then continues; no reset")
@pytest.mark.fault("the controller is stopped: sums continue, nothing is reset")
@pytest.mark.fault("SIGKILL of the controller, then another one: sums continue without it; job and epoch are unchanged")
def test_sums_go_on_after_stops_and_end_when_controller_and_switch_are_killed(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps()
    with ThreadPoolExecutor(RANKS) as pool:
        ranks = begin(pool, system, steps)
        try:
            steps.wait_more(2)
            system.controller.process.send_signal(signal.SIGSTOP)
            steps.wait_more(20)
            system.switch.process.send_signal(signal.SIGSTOP)
            steps.wait_stuck()
            system.switch.process.send_signal(signal.SIGCONT)
            steps.wait_more(20)
            system.controller.process.send_signal(signal.SIGCONT)
            steps.wait_more(2)
            system.controller.end(signal.SIGKILL)
            steps.wait_more(20)
            system.start_controller()
            with JobClient(system.controller.address("jobs on")) as client:
                assert client.get_job("train").epoch == 1
            steps.wait_more(20)
        finally:
            steps.stop()
        assert [rank.result(LIMIT_S) for rank in ranks] == [{1}] * RANKS, "one epoch: nothing was reset"
    check_killed(system, monkeypatch)


def check_killed(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the default timeout of collectives; nothing is left that could reset the job."""
    address = system.controller.address("jobs on")
    with JobClient(address) as client:
        client.create_job("job0", 2, slots=8)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(
            lambda rank: p4reduce.join("job0", rank=rank, world_size=2, controller=address, timeout_s=LIMIT_S), range(2)
        )
        waiting = pool.submit(first.barrier)
        wait_until(lambda: first.waiting() is not None)
        for process in (system.controller, system.switch):
            process.end(signal.SIGKILL)
        monkeypatch.setattr(lease, "DEAD_AFTER_S", 1.0)
        with pytest.raises(p4reduce.errors.ControllerLostError):
            waiting.result(LIMIT_S)
        for comm in (first, second):
            comm.close(wait=False)


def test_traces_that_come_and_go_change_no_sum_and_lose_no_frame(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each trace has one frame at least; every frame that is sent reaches the program; memory hardly grows."""
    monkeypatch.setenv("P4REDUCE_SEGMENTATION", "off")  # no frames that try it
    steps = Steps()
    status = Path(f"/proc/{system.switch.process.pid}/status")
    resident: list[int] = []
    with (
        JobClient(system.controller.address("jobs on")) as client,
        grpc.insecure_channel(system.switch.address("P4Runtime")) as channel,
        ThreadPoolExecutor(RANKS) as pool,
    ):
        stub: Any = trace_pb2_grpc.PacketTracesStub(channel)  # type: ignore[no-untyped-call]
        ranks = begin(pool, system, steps)
        try:
            for number in range(TRACES):
                call = stub.Watch(pb.WatchRequest(), timeout=LIMIT_S)
                assert not next(call).trace and b"received" in next(call).trace
                call.cancel()
                steps.wait_more(1)
                if number >= TRACES // 3:  # memory has what it keeps
                    resident.append(1024 * int(re.findall(r"VmRSS:\s+(\d+)", status.read_text())[0]))
        finally:
            steps.stop()
        assert [rank.result(LIMIT_S) for rank in ranks] == [{1}] * RANKS
        sent = sum(comm.stats.frames_up for comm in steps.comms)
        deadline = time.monotonic() + LIMIT_S
        while (job := client.stats("train").jobs[0]).contributions.packets + job.duplicates.packets != sent:
            assert time.monotonic() < deadline, f"{sent} frames were sent: {job}"
            time.sleep(0.01)
    assert resident[-1] - resident[0] < 4 << 20


@pytest.mark.fault(
    "SIGKILL of a leaf of three switches, twice, then of it and the controller, under "
    "ranks with `rejoin=True`: they join again and finish the collective that was interrupted"
)
@pytest.mark.fault(
    "the controller is away for longer than its dead time, ranks with `rejoin=True`: they wait for it, join "
    "again and finish the collective"
)
@pytest.mark.parametrize(("system", "killed"), [KILLED["leaf"]], indirect=["system"])
def test_sums_are_right_after_switch_and_controller_are_killed(
    system: System, killed: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Until the ranks give the controller up they sum without it; then they wait for it, each at its own moment."""
    steps = Steps(ranks_of(system))
    with ThreadPoolExecutor(ranks_of(system)) as pool:
        ranks = begin(pool, system, steps)
        try:
            for _ in range(2):
                steps.wait_more(5)
                system.kill_switch(killed)
                system.start_switch(killed)
            steps.wait_more(5)
            system.kill_switch(killed)
            system.controller.end(signal.SIGKILL)
            system.start_switch(killed)
            system.start_controller()
            steps.wait_more(5)
            with JobClient(system.controller.address("jobs on")) as client:
                assert {counted.switch for counted in client.stats("train").jobs} == {system.root, *system.leaves}
            caplog.clear()
            system.controller.end(signal.SIGKILL)
            monkeypatch.setattr(lease, "DEAD_AFTER_S", 1.0)
            wait_until(
                lambda: all(f"rank {rank} waits to join job 'train'" in caplog.text for rank in range(len(ranks))),
                "no rank goes on alone",
            )
            monkeypatch.undo()
            system.start_controller()
            steps.wait_more(5)
        finally:
            steps.stop()
        epochs = [rank.result(LIMIT_S) for rank in ranks]
    assert len(set().union(*epochs)) == 5 and len({max(each) for each in epochs}) == 1
