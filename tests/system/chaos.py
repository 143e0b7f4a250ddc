"""Kill workers, switches and controller at random under a training, which must end correctly (docs/reliability.md).

    python tests/system/chaos.py --seconds 300 --seed 1     # or: make chaos CHAOS_SECONDS=300
    python tests/system/chaos.py --racks 2                  # over a tree; or: make chaos RACKS=2

Training goes on in legs of so many steps, each from the checkpoints of the one before, until the time is up; then the
last one is left in peace to its end. All ranks must then have the same weights.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from p4reduce_contracts.jobs.client import JobClient
from p4reduce_lab.processes import Child, Children
from rigs.elastic_runs import FAULTS, FAULTS_OF_TREE, check_end, start_training, world_size
from rigs.system import running_system

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 15.0
"""Between two kills; shorter than a launch of torchrun on a busy machine, so that some hit a recovery."""
PEACE_S = 300.0
"""For the last leg to end."""


@dataclass(frozen=True)
class Report:
    """What became of it."""

    seconds: float
    kills: Counter[str]
    steps: int
    redone: int
    launches: int

    def __str__(self) -> str:
        kills = ", ".join(f"{name} {count} times" for name, count in sorted(self.kills.items()))
        return (
            f"{self.seconds:.0f} s, killed {kills}: {self.steps} steps, the same weights on all ranks, "
            f"{self.redone} steps were redone, {self.launches} launches"
        )


def run_chaos(
    folder: Path, seconds: float, seed: int, leg: int = 300, options: tuple[str, ...] = (), racks: int = 1
) -> Report:
    """Train through kills for so long. Raises AssertionError when training does not end well.

    With several `racks` the ranks are at as many leaves of a tree of switches, two at each.
    """
    choice = random.Random(seed)
    kills: Counter[str] = Counter()
    checkpoints = folder / "checkpoints"
    steps = launches = 0
    begun_at = time.monotonic()
    with running_system(folder, racks=racks) as system, Children(folder) as children:
        ranks, faults = world_size(system), FAULTS_OF_TREE if system.leaves else FAULTS
        with JobClient(system.controller.address("jobs on")) as client:
            client.create_job("elastic", ranks)
        while True:
            steps += leg
            launcher = start_training(children, system, checkpoints, steps, options, restarts=1000)
            while time.monotonic() - begun_at < seconds and not _ended(launcher, choice):
                fault = choice.choice(faults)
                kills[fault.__name__.removeprefix("kill_")] += fault(system, launcher, choice)
            launcher.wait(max(PEACE_S, begun_at + seconds + PEACE_S - time.monotonic()))
            children.forget(launcher)
            redone = check_end(launcher, checkpoints, steps, ranks)
            launches += launcher.log.read_text().count("rank 0: launch")
            if time.monotonic() - begun_at >= seconds:
                return Report(time.monotonic() - begun_at, kills, steps, redone, launches)


def _ended(launcher: Child, choice: random.Random) -> bool:
    """Wait a random while; return whether training has ended in it."""
    until = time.monotonic() + choice.uniform(FIRST_PAUSE_S, LONGEST_PAUSE_S)
    while launcher.status is None and time.monotonic() < until:
        time.sleep(0.05)
    return launcher.status is not None


def main() -> None:
    """Run it as the command line says, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--leg", type=int, default=300, help="steps from one start of torchrun to the next")
    parser.add_argument("--racks", type=int, default=1, help="leaf switches below a root, with two ranks each")
    parser.add_argument("--rejoin", action="store_true", help="ranks join again instead of starting anew")
    parser.add_argument("--fallback", choices=["gloo"], help="with --rejoin: meanwhile over the process group")
    given = parser.parse_args()
    options = [*(["--rejoin"] if given.rejoin else []), *([f"--fallback={given.fallback}"] if given.fallback else [])]
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="p4reduce-chaos-") as folder:
        print(run_chaos(Path(folder), given.seconds, given.seed, given.leg, tuple(options), given.racks))


if __name__ == "__main__":
    main()
