"""Faults that the running system holds out: real switch and controller, ranks as threads, sums checked bit for bit."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import p4reduce
from p4reduce_contracts.jobs import lease
from p4reduce_contracts.jobs.client import JobClient
from rigs.limits import LIMIT_S
from rigs.system import System, start_controller, start_switch

STOPPED_S = 3.0


def tensor(job: int, rank: int, step: int) -> np.ndarray:
    """What a rank gives: any int32 at all, so that sums of the wrong rank, job or step cannot be right by chance."""
    return np.random.default_rng([job, rank, step]).integers(-(2**31), 2**31, 700).astype(np.int32)


def train(address: str, job: int, rank: int, ranks: int, steps: int, begun: threading.Barrier) -> int:
    """Sum `steps` tensors; AssertionError at the first wrong sum. Returns the epoch that it all happened in."""
    with p4reduce.join(f"job{job}", rank=rank, world_size=ranks, controller=address, timeout_s=LIMIT_S) as comm:
        begun.wait(LIMIT_S)
        for step in range(steps):
            got = comm.all_reduce(tensor(job, rank, step), timeout_s=LIMIT_S)
            want = np.sum([tensor(job, each, step) for each in range(ranks)], axis=0, dtype=np.int32)
            assert np.array_equal(got, want), f"job {job}, rank {rank}, step {step}"
            if step == 0:
                begun.wait(LIMIT_S)
        return comm.lease.epoch


@pytest.mark.fault(
    "addresses and a length with which an IPv4 header checksum is 0: 1 pair of addresses in about 7,000: the "
    "UDP underlay writes 0, as the program expects"
)
def test_a_job_sums_where_full_frames_have_an_ipv4_header_checksum_of_zero(tmp_path: Path) -> None:
    """Ranks on 127.0.0.1, the switch at 127.0.56.144: so it is for the full frames of the default pipeline."""
    switch = start_switch(tmp_path, listen="127.0.56.144:0")
    try:
        controller = start_controller(tmp_path, switch, pipeline="default")
        try:
            address, ranks = controller.address("jobs on"), 2
            with JobClient(address) as client:
                client.create_job("job0", ranks)
            begun = threading.Barrier(ranks)
            with ThreadPoolExecutor(ranks) as pool:
                running = [pool.submit(train, address, 0, rank, ranks, 3, begun) for rank in range(ranks)]
                assert [each.result(2 * LIMIT_S) for each in running] == [1] * ranks
        finally:
            controller.end()
    finally:
        switch.end()


@pytest.mark.fault(
    "SIGKILL of controller and switch without a restart, during a collective: ControllerLostError interrupts it"
)
def test_a_collective_ends_after_controller_and_switch_are_killed(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.fault("the switch is stopped (SIGSTOP) for 3 s: the collective waits, then continues; no reset")
@pytest.mark.fault("the controller is stopped for 3 s: sums continue, nothing is reset")
@pytest.mark.parametrize("stopped", ["switch", "controller"])
def test_training_continues_after_a_program_is_stopped_for_3_s(system: System, stopped: str) -> None:
    address, ranks = system.controller.address("jobs on"), 2
    with JobClient(address) as client:
        client.create_job("job0", ranks, slots=8)
    begun = threading.Barrier(ranks + 1)
    with ThreadPoolExecutor(ranks) as pool:
        running = [pool.submit(train, address, 0, rank, ranks, 40, begun) for rank in range(ranks)]
        begun.wait(LIMIT_S)
        begun.wait(LIMIT_S)  # the first sum is there
        process = getattr(system, stopped).process
        process.send_signal(signal.SIGSTOP)
        time.sleep(STOPPED_S)
        process.send_signal(signal.SIGCONT)
        assert [each.result(LIMIT_S) for each in running] == [1] * ranks, "one epoch: nothing was reset"


@pytest.mark.fault("four jobs of two ranks at once: each has its own sums and epoch")
def test_four_jobs_at_once_stay_exact(system: System) -> None:
    address, ranks, jobs = system.controller.address("jobs on"), 2, 4
    with JobClient(address) as client:
        for job in range(jobs):
            client.create_job(f"job{job}", ranks, slots=4)
    begun = threading.Barrier(jobs * ranks)
    with ThreadPoolExecutor(jobs * ranks) as pool:
        running = [
            pool.submit(train, address, job, rank, ranks, 15, begun) for job in range(jobs) for rank in range(ranks)
        ]
        epochs = [each.result(2 * LIMIT_S) for each in running]
    assert len(set(epochs)) == jobs, "each job has an epoch of its own, and no job was reset"
