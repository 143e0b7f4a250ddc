"""examples/elastic.py under torchrun, and what may be killed under it."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from p4reduce_lab.processes import Child, Children
from p4reduce_lab.training import find_script
from rigs.system import ROOT, System

RANKS = 2
"""Ranks of a job, or of each rack."""
EVERY = 20
"""Steps from one checkpoint to the next."""
SCRIPT = find_script().with_name("elastic.py")
AT_SWITCH = Path(__file__).with_name("at_switch.py")

Fault = Callable[[System, Child, random.Random], bool]
"""Kills something, and returns whether there was anything to kill."""


def world_size(system: System) -> int:
    return RANKS * max(1, len(system.leaves))


def start_training(
    children: Children, system: System, folder: Path, steps: int, options: Sequence[str] = (), *, restarts: int
) -> Child:
    """Train job "elastic" up to step `steps`, from the checkpoints in `folder`: RANKS ranks at each leaf."""
    ranks = world_size(system)
    switches = ",".join(system.switch_of(rank, ranks) for rank in range(ranks))
    return children.start(
        "torchrun",
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"),
            *(f"--nproc-per-node={ranks}", f"--max-restarts={restarts}"),
            *((str(AT_SWITCH), switches) if system.leaves else ()),
            *(str(SCRIPT), "--job=elastic", f"--folder={folder}", f"--steps={steps}", f"--every={EVERY}"),
            *("--compressor=adacomp", *options),
        ],
        {
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            "P4REDUCE_CONTROLLER": system.controller.address("jobs on"),
            **({"P4REDUCE_HOSTS": "off"} if system.beside else {}),  # all sums over the switches
        },
    )


def worker_pids(launcher: Child) -> list[int]:
    """The ranks, which are torchrun's children; fewer while it starts them or has just ended."""
    found = []
    with contextlib.suppress(OSError):
        for pid in Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split():
            with contextlib.suppress(OSError):
                if SCRIPT.name in Path(f"/proc/{pid}/cmdline").read_text():
                    found.append(int(pid))
    return found


def kill_worker(system: System, launcher: Child, choice: random.Random) -> bool:
    ranks = worker_pids(launcher)
    if not ranks:
        return False
    try:
        os.kill(choice.choice(ranks), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def kill_switch(system: System, launcher: Child, choice: random.Random) -> bool:
    """SIGKILL the switch, of a tree the root; start another, as a supervisor would."""
    system.kill_switch()
    system.start_switch()
    return True


def kill_leaf(system: System, launcher: Child, choice: random.Random) -> bool:
    """SIGKILL one of the leaves, if there are any; start another in its place."""
    if not system.leaves:
        return False
    name = choice.choice(sorted(system.leaves))
    system.kill_switch(name)
    system.start_switch(name)
    return True


def kill_switch_side_by_side(system: System, launcher: Child, choice: random.Random) -> bool:
    """SIGKILL one of the switches side by side; start it again, every second time only when the next one is killed."""
    if before := system.away:
        system.start_switch(before)
    system.away = choice.choice([ROOT, *system.beside])
    system.kill_switch(system.away)
    if before:
        system.start_switch(system.away)
        system.away = ""
    return True


def kill_controller(system: System, launcher: Child, choice: random.Random) -> bool:
    system.controller.end(signal.SIGKILL)
    system.start_controller()
    return True


FAULTS: tuple[Fault, ...] = (kill_worker, kill_switch, kill_controller)
FAULTS_OF_TREE: tuple[Fault, ...] = (*FAULTS, kill_leaf)
FAULTS_SIDE_BY_SIDE: tuple[Fault, ...] = (kill_worker, kill_switch_side_by_side, kill_controller)


def begun(folder: Path) -> int:
    """Return how many steps rank 0 has begun, in all launches."""
    path = folder / "begun"
    return path.stat().st_size if path.exists() else 0


def check_end(launcher: Child, folder: Path, steps: int, ranks: int = RANKS) -> int:
    """Check that training has ended well, with the same weights on all ranks; return how many steps were redone."""
    text = launcher.log.read_text()
    assert launcher.status == 0, text
    weights = re.findall(rf"rank (\d): {steps} steps, weights ([0-9a-f]+)", text)
    assert {int(rank) for rank, _ in weights} == set(range(ranks)), text
    assert len({digest for _, digest in weights}) == 1, "all ranks end with the same weights"
    resumed = [int(step) for step in re.findall(r"rank 0: launch \d+ goes on after step (\d+)", text)]
    assert resumed == sorted(resumed) and all(step % EVERY == 0 for step in resumed), "from later checkpoints"
    redone = re.findall(r"(\d+) steps were redone", text)
    assert redone and int(redone[-1]) == begun(folder) - steps, text
    return int(redone[-1])
