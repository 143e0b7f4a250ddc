"""Kill workers, switches and controller at random under a training, which must end correctly (docs/reliability.md).

    python tests/system/chaos.py --kills 30 --seed 1        # or: make chaos KILLS=30
    python tests/system/chaos.py --racks 2                  # over a tree; or: make chaos RACKS=2
    python tests/system/chaos.py --switches 3 --rejoin      # side by side; without rejoin: make chaos SWITCHES=3

Training goes on in legs of so many steps, each from the checkpoints of the one before, until so many programs have been
killed; then the last one is left in peace to its end. All ranks must then have the same weights.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.extend(str(Path(__file__).resolve().parents[2] / tests) for tests in ("tests", "softswitch/tests"))

from p4reduce_contracts.jobs.client import JobClient
from p4reduce_lab.processes import Child, Children
from rigs.elastic_runs import (
    EVERY,
    FAULTS,
    FAULTS_OF_TREE,
    FAULTS_SIDE_BY_SIDE,
    Fault,
    begun,
    check_end,
    start_training,
    world_size,
)
from rigs.limits import LIMIT_S
from rigs.system import running_system

LONGEST_PAUSE_S = 5.0
"""Seconds before a kill; shorter than a launch of torchrun, so that some kills hit a recovery."""


@dataclass(frozen=True)
class Report:
    """The outcome of a run."""

    kills: Counter[str]
    steps: int
    redone: int
    launches: int
    granted: Counter[str]
    """Number of epochs by how many switches the job had."""

    def __str__(self) -> str:
        kills = ", ".join(f"{name} {count} times" for name, count in sorted(self.kills.items()))
        over = ", ".join(f"{count} over {switches}" for switches, count in sorted(self.granted.items()))
        return (
            f"killed {kills}: {self.steps} steps, the same weights on all ranks, "
            f"{self.redone} steps were redone, {self.launches} launches, epochs: {over}"
        )


def run_chaos(
    folder: Path,
    count: int,
    seed: int,
    leg: int = 300,
    options: tuple[str, ...] = (),
    racks: int = 1,
    switches: int = 1,
) -> Report:
    """Train through `count` kills, all kinds equally often.

    With several `racks` the ranks are at as many leaves of a tree of switches, two at each. Of several `switches` side
    by side one is away half of the time. Raises AssertionError when training does not end well.
    """
    choice = random.Random(seed)
    kills: Counter[str] = Counter()
    checkpoints = folder / "checkpoints"
    steps = launches = 0
    left: list[Fault] = []
    with running_system(folder, racks=racks, switches=switches) as system, Children(folder) as children:
        ranks, faults = world_size(system), FAULTS_OF_TREE if system.leaves else FAULTS
        if system.beside:
            faults, options = FAULTS_SIDE_BY_SIDE, (*options, "--compressor=none")  # frames for all switches
        with JobClient(system.controller.address("jobs on")) as client:
            client.create_job("elastic", ranks)
        while True:
            steps += leg
            launcher = start_training(children, system, checkpoints, steps, options, restarts=1000)
            while kills.total() < count and not _ended(launcher, checkpoints, choice):
                left = left or choice.sample(faults, len(faults))
                if left[-1](system, launcher, choice):
                    kills[left.pop().__name__.removeprefix("kill_")] += 1
            launcher.wait(LIMIT_S)
            redone = check_end(launcher, checkpoints, steps, ranks)
            launches += launcher.log.read_text().count("rank 0: launch")
            print(f"{kills.total()} killed, {steps} steps, the same weights on all ranks", flush=True)
            if kills.total() == count:
                assert redone <= (EVERY + 1) * launches, "at most those since a checkpoint, each time"
                granted = re.findall(r"job granted .*switches=(\d+)", (folder / "controller.log").read_text())
                return Report(kills, steps, redone, launches, Counter(granted))


def _ended(launcher: Child, checkpoints: Path, choice: random.Random) -> bool:
    """Wait a random while, half of the times from a step on; return whether training has ended in it."""
    before, step = begun(checkpoints), choice.random() < 0.5
    until = time.monotonic() + choice.uniform(0.0, LONGEST_PAUSE_S)
    deadline = time.monotonic() + LIMIT_S
    while launcher.status is None and (time.monotonic() < until or (step and begun(checkpoints) == before)):
        assert time.monotonic() < deadline, launcher.log.read_text()
        time.sleep(0.05)
    return launcher.status is not None


def main() -> None:
    """Run it as the command line says, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--leg", type=int, default=300, help="steps from one start of torchrun to the next")
    parser.add_argument("--racks", type=int, default=1, help="leaf switches below a root, with two ranks each")
    parser.add_argument("--rejoin", action="store_true", help="ranks join again instead of starting anew")
    parser.add_argument("--switches", type=int, default=1, help="switches side by side")
    given = parser.parse_args()
    options = ["--rejoin"] if given.rejoin else []
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="p4reduce-chaos-") as folder:
        report = run_chaos(
            Path(folder), given.kills, given.seed, given.leg, tuple(options), given.racks, given.switches
        )
        print(report)


if __name__ == "__main__":
    main()
