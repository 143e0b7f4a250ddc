"""Faults that the running system holds out: real switch and controller, ranks as threads, sums checked bit for bit."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import p4reduce
from p4reduce_contracts.jobs import lease
from p4reduce_contracts.jobs.client import JobClient
from rigs.limits import LIMIT_S
from rigs.survivors import RANKS, Steps, train
from rigs.system import System


@pytest.mark.fault(
    "SIGKILL of controller and switch without a restart, during a collective: ControllerLostError interrupts it"
)
@pytest.mark.fault("the switch is stopped (SIGSTOP): the collective waits, then continues; no reset")
@pytest.mark.fault("the controller is stopped: sums continue, nothing is reset")
def test_sums_go_on_after_stops_and_end_when_controller_and_switch_are_killed(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, steps = system.controller.address("jobs on"), Steps()
    with JobClient(address) as client:
        client.create_job("train", RANKS, slots=8)
    with ThreadPoolExecutor(RANKS) as pool:
        ranks = [pool.submit(train, address, rank, steps) for rank in range(RANKS)]
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
        deadline = time.monotonic() + LIMIT_S
        while first.waiting() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for process in (system.controller, system.switch):
            process.end(signal.SIGKILL)
        monkeypatch.setattr(lease, "DEAD_AFTER_S", 1.0)
        with pytest.raises(p4reduce.errors.ControllerLostError):
            waiting.result(LIMIT_S)
        for comm in (first, second):
            comm.close(wait=False)
