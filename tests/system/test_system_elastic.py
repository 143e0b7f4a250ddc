"""examples/elastic.py while a worker, the switch and the controller are killed: once each, and at random."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from p4reduce_contracts.jobs.client import JobClient
from p4reduce_lab.processes import Children
from rigs.elastic_runs import EVERY, FAULTS, RANKS, begun, check_end, start_training, worker_pids
from rigs.system import System
from system.chaos import run_chaos

STEPS = 1500
"""An idle machine makes more than a hundred a second, and goes on while a program is started again."""
DEADLINE_S = 1800.0
"""Three launches take a minute; on a machine with much else to do, ten."""
SEED = 1


@pytest.mark.fault(
    "worker, switch and controller are killed, once each, under torchrun: new launches resume from a "
    "checkpoint; all ranks end with equal weights"
)
@pytest.mark.slow
def test_training_ends_with_equal_weights_after_any_kill(tmp_path: Path, system: System) -> None:
    choice = random.Random(SEED)
    faults = list(FAULTS)
    choice.shuffle(faults)
    folder = tmp_path / "checkpoints"
    with JobClient(system.controller.address("jobs on")) as client:
        client.create_job("elastic", RANKS)
    with Children(tmp_path) as children:
        launcher = start_training(children, system, folder, STEPS, restarts=10)
        deadline = time.monotonic() + DEADLINE_S
        for fault in faults:
            # More than one step further than before the last fault: the ranks are at work again, all of them.
            target = begun(folder) + choice.randint(25, 70)
            launcher.wait_ready(lambda target=target: begun(folder) >= target, deadline - time.monotonic())
            assert len(worker_pids(launcher)) == RANKS
            assert fault(system, launcher, choice)
        launcher.wait(deadline - time.monotonic())
        children.forget(launcher)
    redone = check_end(launcher, folder, STEPS)
    resumed = [
        int(step) for step in re.findall(r"rank 0: launch \d+ goes on after step (\d+)", launcher.log.read_text())
    ]
    assert len(resumed) >= 3 and all(resumed[1:]), "a worker's death and the switch's cost a launch each"
    assert resumed == sorted(resumed) and all(step % EVERY == 0 for step in resumed)
    assert 0 < redone <= (EVERY + 1) * (len(resumed) - 1), "at most those since a checkpoint, each time"


@pytest.mark.fault(
    "random kills of worker, switch and controller for twelve seconds under torchrun: all ranks end with equal weights"
)
@pytest.mark.slow
@pytest.mark.parametrize("racks", [1, 2])
def test_random_kills(tmp_path: Path, racks: int) -> None:
    report = run_chaos(tmp_path, 12.0, seed=SEED, leg=60, racks=racks)
    assert sum(report.kills.values()) >= 1
    assert report.steps >= 60
