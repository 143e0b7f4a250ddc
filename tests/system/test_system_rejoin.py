"""`join(rejoin=True)` with real kills: the switch, and the controller with it, end by SIGKILL and come back."""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import p4reduce
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_lab.processes import Child, Children
from p4reduce_lab.training import find_script
from rigs.p4rt import System, start_controller, start_switch

LIMIT_S = 120.0
RANKS = 2
SCRIPT = find_script().with_name("elastic.py")


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    switch = start_switch(tmp_path)
    try:
        running = System(tmp_path, switch, start_controller(tmp_path, switch))
    except BaseException:
        switch.end(signal.SIGKILL)
        raise
    yield running
    for process in (running.controller, running.switch):
        process.end(signal.SIGKILL)


def tensor(rank: int, step: int) -> np.ndarray:
    """What a rank gives: any int32 at all, so that a sum of the wrong step or rank cannot be right by chance."""
    return np.random.default_rng([rank, step]).integers(-(2**31), 2**31, 700).astype(np.int32)


class Steps:
    """How far each rank is; all of them go on until they are told to stop at a step that none has passed."""

    def __init__(self) -> None:
        self.done = [0] * RANKS
        self.last = sys.maxsize
        self._lock = threading.Lock()

    def begin(self, rank: int) -> bool:
        with self._lock:
            if self.done[rank] >= self.last:
                return False
            self.done[rank] += 1
            return True

    def stop(self) -> None:
        with self._lock:
            self.last = max(self.done) + 5

    def wait_more(self, count: int) -> None:
        target, deadline = max(self.done) + count, time.monotonic() + LIMIT_S
        while min(self.done) < target:
            assert time.monotonic() < deadline, f"stuck at steps {self.done}"
            time.sleep(0.01)


def train(address: str, rank: int, steps: Steps) -> set[int]:
    """Sum a tensor a step; AssertionError at the first wrong sum. Returns the epochs that it saw."""
    epochs = set()
    with p4reduce.join(
        "train", rank=rank, world_size=RANKS, controller=address, timeout_s=LIMIT_S, rejoin=True
    ) as comm:
        while steps.begin(rank):
            step = steps.done[rank]
            got = comm.all_reduce(tensor(rank, step), timeout_s=LIMIT_S)
            want = np.sum([tensor(each, step) for each in range(RANKS)], axis=0, dtype=np.int32)
            assert np.array_equal(got, want), f"rank {rank}, step {step}"
            epochs.add(comm.lease.epoch)
    return epochs


def test_the_switch_and_then_the_controller_too_are_killed_and_no_sum_is_wrong(system: System) -> None:
    address = system.controller.address("jobs on")
    with JobClient(address) as client:
        client.create_job("train", RANKS, slots=8)
    steps = Steps()
    with ThreadPoolExecutor(RANKS) as pool:
        ranks = [pool.submit(train, address, rank, steps) for rank in range(RANKS)]
        try:
            for _ in range(2):
                steps.wait_more(5)
                system.switch.end(signal.SIGKILL)
                system.start_switch()
            steps.wait_more(5)
            system.switch.end(signal.SIGKILL)
            system.controller.end(signal.SIGKILL)
            system.start_switch()
            system.start_controller()
            steps.wait_more(5)
        finally:
            steps.stop()
        epochs = [rank.result(LIMIT_S) for rank in ranks]
    assert len(epochs[0] | epochs[1]) == 4


def weights(launcher: Child) -> set[str]:
    text = launcher.log.read_text()
    assert launcher.status == 0, text
    found = re.findall(r"rank \d: \d+ steps, weights ([0-9a-f]+)", text)
    assert len(found) == RANKS, text
    assert re.findall(r"launch (\d+) goes on after step 0", text) == ["0"] * RANKS, "nobody was started anew"
    assert "0 steps were redone" in text
    return set(found)


@pytest.mark.slow
@pytest.mark.parametrize("compressor", ["none", "adacomp"])
def test_training_goes_on_in_the_same_processes(tmp_path: Path, system: System, compressor: str) -> None:
    pytest.importorskip("torch")
    controller = system.controller.address("jobs on")

    def start(job: str, steps: int) -> Child:
        return children.start(
            job,
            [
                *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"),
                *(f"--nproc-per-node={RANKS}", str(SCRIPT), f"--job={job}", f"--folder={tmp_path / job}"),
                *(f"--steps={steps}", f"--every={steps}", f"--compressor={compressor}", "--rejoin"),
            ],
            {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "P4REDUCE_CONTROLLER": controller},
        )

    with JobClient(controller) as client:
        for job in ("disturbed", "undisturbed"):
            client.create_job(job, RANKS, slots=16)
    with Children(tmp_path) as children:
        launcher = start("disturbed", steps := 400)
        for at in (20, 150, 280):
            launcher.wait_ready(lambda at=at: begun(tmp_path / "disturbed") >= at, LIMIT_S)
            system.switch.end(signal.SIGKILL)
            system.start_switch()
        launcher.wait(LIMIT_S)
        children.forget(launcher)
        undisturbed = start("undisturbed", steps)
        undisturbed.wait(LIMIT_S)
        children.forget(undisturbed)
    assert len(weights(launcher) | weights(undisturbed)) == 1, "on all ranks, and as if nothing had happened"
    assert (tmp_path / "controller.log").read_text().count("job reset job=disturbed") == 3


def begun(folder: Path) -> int:
    """How many steps rank 0 has begun."""
    path = folder / "begun"
    return path.stat().st_size if path.exists() else 0
