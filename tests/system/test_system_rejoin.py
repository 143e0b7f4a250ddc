"""`join(rejoin=True)` with real kills: the switch, and the controller with it, end by SIGKILL and come back."""

from __future__ import annotations

import re
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("torch")

from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.lease import DEAD_AFTER_S
from p4reduce_lab.processes import Child, Children
from p4reduce_lab.training import find_script
from rigs.elastic_runs import begun
from rigs.memory_group import MemoryGroups
from rigs.survivors import LIMIT_S, RANKS, Steps, train
from rigs.system import System

SCRIPT = find_script().with_name("elastic.py")


def test_sums_are_right_after_switch_and_controller_are_killed(system: System) -> None:
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


@pytest.mark.slow
def test_a_long_absence_of_the_controller_begins_a_new_epoch(system: System) -> None:
    """Until the ranks give it up they sum without it; then they wait for it, each at its own moment."""
    address = system.controller.address("jobs on")
    with JobClient(address) as client:
        client.create_job("train", RANKS, slots=8)
    steps = Steps()
    with ThreadPoolExecutor(RANKS) as pool:
        ranks = [pool.submit(train, address, rank, steps) for rank in range(RANKS)]
        try:
            steps.wait_more(5)
            system.controller.end(signal.SIGKILL)
            time.sleep(DEAD_AFTER_S + 2.0)
            stopped_at = max(steps.done)
            time.sleep(0.5)
            assert max(steps.done) <= stopped_at + 1, "no rank goes on alone"
            system.start_controller()
            steps.wait_more(5)
        finally:
            steps.stop()
        epochs = [rank.result(LIMIT_S) for rank in ranks]
    assert all(len(each) == 2 for each in epochs)


def test_the_ranks_continue_without_the_switch_and_return_to_it(system: System) -> None:
    address = system.controller.address("jobs on")
    with JobClient(address) as client:
        client.create_job("train", RANKS, slots=8)
        steps, peers = Steps(), MemoryGroups(RANKS)
        with ThreadPoolExecutor(RANKS) as pool:
            ranks = [pool.submit(train, address, rank, steps, peers) for rank in range(RANKS)]
            try:
                for _ in range(2):
                    steps.wait_more(5)
                    system.switch.end(signal.SIGKILL)
                    steps.wait_more(50)
                    system.start_switch()
                    deadline = time.monotonic() + LIMIT_S
                    while client.get_job("train").state != "ACTIVE":
                        assert time.monotonic() < deadline
                        time.sleep(0.05)
                    before = client.stats("train").jobs[0].results.packets
                    while client.stats("train").jobs[0].results.packets < before + 20:
                        assert time.monotonic() < deadline, "they are back on the switch"
                        time.sleep(0.05)
            finally:
                steps.stop()
            found = [rank.result(LIMIT_S) for rank in ranks]
    assert all(len(epochs) == 3 for epochs in found)


def weights(launcher: Child) -> set[str]:
    text = launcher.log.read_text()
    assert launcher.status == 0, text
    found = re.findall(r"rank \d: \d+ steps, weights ([0-9a-f]+)", text)
    assert len(found) == RANKS, text
    assert re.findall(r"launch (\d+) goes on after step 0", text) == ["0"] * RANKS, "no process was started anew"
    assert "0 steps were redone" in text
    return set(found)


@pytest.mark.slow
@pytest.mark.parametrize("fallback", [[], ["--fallback=gloo"]])
@pytest.mark.parametrize("compressor", ["none", "adacomp"])
def test_training_continues_in_the_same_processes(
    tmp_path: Path, system: System, compressor: str, fallback: list[str]
) -> None:
    controller = system.controller.address("jobs on")
    steps = 120

    def start(job: str) -> Child:
        return children.start(
            job,
            [
                *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"),
                *(f"--nproc-per-node={RANKS}", str(SCRIPT), f"--job={job}", f"--folder={tmp_path / job}"),
                *(f"--steps={steps}", f"--every={steps}", f"--compressor={compressor}", "--rejoin", *fallback),
            ],
            {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "P4REDUCE_CONTROLLER": controller},
        )

    def wait_begun(step: int) -> None:
        launcher.wait_ready(lambda: begun(tmp_path / "disturbed") >= step, LIMIT_S)

    controller_log = tmp_path / "controller.log"
    with JobClient(controller) as client:
        for job in ("disturbed", "undisturbed"):
            client.create_job(job, RANKS, slots=8)
    with Children(tmp_path) as children:
        launcher = start("disturbed")
        for at in (20,) if fallback else (20, 60):
            wait_begun(at)
            system.switch.end(signal.SIGKILL)
            if fallback:
                wait_begun(begun(tmp_path / "disturbed") + 20)  # without the switch
            system.start_switch()
        launcher.wait(LIMIT_S)
        children.forget(launcher)
        undisturbed = start("undisturbed")
        undisturbed.wait(LIMIT_S)
        children.forget(undisturbed)
    assert len(weights(launcher) | weights(undisturbed)) == 1, "on all ranks, and as if nothing had happened"
    assert controller_log.read_text().count("job reset job=disturbed") >= (1 if fallback else 2)
