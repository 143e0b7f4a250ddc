"""examples/elastic.py while a worker, the switch and the controller are killed, once each, at seeded moments."""

import os
import random
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")

from p4reduce_contracts.jobs.client import JobClient
from p4reduce_lab.processes import Child, Children
from p4reduce_lab.training import find_script
from rigs.p4rt import System, start_controller, start_switch

RANKS = 2
STEPS = 1500
"""An idle machine makes more than a hundred a second, and goes on while a program is started again."""
DEADLINE_S = 480.0
"""Three launches take a minute; on a machine with much else to do, longer."""
SEED = 1
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
        process.end(signal.SIGKILL)  # those that were started again may have ended with the other children


def kill_worker(system: System, launcher: Child, choice: random.Random) -> None:
    """SIGKILL one of the ranks, which are torchrun's children."""
    pids = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    ranks = [int(pid) for pid in pids if SCRIPT.name in Path(f"/proc/{pid}/cmdline").read_text()]
    assert len(ranks) == RANKS
    os.kill(choice.choice(ranks), signal.SIGKILL)


def kill_switch(system: System, launcher: Child, choice: random.Random) -> None:
    """SIGKILL the switch; start another, as whoever watches over it would."""
    system.switch.end(signal.SIGKILL)
    system.start_switch()


def kill_controller(system: System, launcher: Child, choice: random.Random) -> None:
    """SIGKILL the controller; start another at its state."""
    system.controller.end(signal.SIGKILL)
    system.start_controller()


@pytest.mark.slow
def test_training_ends_with_equal_weights_whatever_was_killed(tmp_path: Path, system: System) -> None:
    choice = random.Random(SEED)
    faults = [kill_worker, kill_switch, kill_controller]
    choice.shuffle(faults)
    folder = tmp_path / "checkpoints"
    controller = system.controller.address("jobs on")
    with JobClient(controller) as client:
        client.create_job("elastic", RANKS)
    with Children(tmp_path) as children:
        launcher = children.start(
            "torchrun",
            [
                *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"),
                *(f"--nproc-per-node={RANKS}", "--max-restarts=10", str(SCRIPT), "--job=elastic"),
                *(f"--folder={folder}", f"--steps={STEPS}", "--every=20", "--compressor=adacomp"),
            ],
            {
                "OMP_NUM_THREADS": "1",
                "GLOO_SOCKET_IFNAME": "lo",
                "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
                "P4REDUCE_CONTROLLER": controller,
            },
        )
        deadline = time.monotonic() + DEADLINE_S
        for fault in faults:
            # More than one step further than before the last fault: the ranks are at work again, all of them.
            target = begun(folder) + choice.randint(25, 70)
            launcher.wait_ready(lambda target=target: begun(folder) >= target, deadline - time.monotonic())
            fault(system, launcher, choice)
        launcher.wait(deadline - time.monotonic())
        text = launcher.log.read_text()
        assert launcher.status == 0, text
        children.forget(launcher)
    weights = re.findall(rf"rank (\d): {STEPS} steps, weights ([0-9a-f]+)", text)
    assert {rank for rank, _ in weights} == {"0", "1"}, text
    assert len({digest for _, digest in weights}) == 1, "all ranks end with the same weights"
    resumed = [int(step) for step in re.findall(r"rank 0: launch \d+ goes on after step (\d+)", text)]
    assert len(resumed) >= 3 and all(resumed[1:]), "a worker's death and the switch's cost a launch each"
    assert resumed == sorted(resumed) and all(step % 20 == 0 for step in resumed)
    redone = re.findall(r"(\d+) steps were redone", text)
    assert redone and int(redone[-1]) == begun(folder) - STEPS
    assert 0 < int(redone[-1]) <= 21 * (len(resumed) - 1), "at most those since a checkpoint, each time"


def begun(folder: Path) -> int:
    """How many steps rank 0 has begun, in all launches."""
    path = folder / "begun"
    return path.stat().st_size if path.exists() else 0
