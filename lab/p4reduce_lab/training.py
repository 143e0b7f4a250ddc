"""The trainings of the demo and the testbed: examples/train.py in several variants, here on this machine."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from p4reduce_lab.errors import LabError
from p4reduce_lab.processes import Children, follow
from p4reduce_lab.system import System

WORLD_SIZE = 4
BEGINS = "training "
"""The line that rank 0 prints when it begins a training begins with it; the training's name follows."""
STALL_S = 180.0
"""A run that prints nothing for this long has failed."""
MODULE = "p4reduce_lab.measured_training"
NEEDED = ("torch", "sklearn", "matplotlib")
"""Packages that training and plots need beside p4reduce's own dependencies."""
INSTALL = "in the checkout: pip install '.[demo]'"  # an index may have another project of this name

Result = dict[str, Any]
"""The measurements of a training (measured_training.py), and the "name" of its variant."""

VARIANTS = {
    "gloo-dense": ("--aggregation=gloo",),
    "p4reduce-dense": ("--aggregation=p4reduce",),
    "p4reduce-adacomp": ("--aggregation=p4reduce", "--compressor=adacomp"),
}
"""Variant -> its options of the script: what sums the gradients, and their compressor."""


def missing_packages() -> list[str]:
    """Return which of NEEDED are not installed."""
    return [name for name in NEEDED if find_spec(name) is None]


def find_script() -> Path:
    """Return the training script: of this checkout, or installed beside the package. Raises LabError."""
    checkout = Path(__file__).resolve().parents[2] / "examples" / "train.py"
    installed = Path(sys.prefix) / "share" / "p4reduce" / "examples" / "train.py"
    for path in (checkout, installed):
        if path.is_file():
            return path
    raise LabError(f"the training script is neither at {checkout} nor at {installed}: install p4reduce anew")


def load_script(name: str = "train.py") -> SimpleNamespace:
    """Return what the training script defines, or another one beside it; they are in no package."""
    return SimpleNamespace(**runpy.run_path(str(find_script().with_name(name))))


@dataclass(frozen=True)
class Plan:
    """What is trained: all variants, in turn, with each seed."""

    seeds: int = 1
    epochs: int | None = None
    """None: the script's own number."""
    variants: Sequence[str] = tuple(VARIANTS)

    def command(self, job: str) -> list[str]:
        """Return the arguments of the interpreter for a worker, which joins `job` where the switch sums.

        A worker does all trainings, because each start takes seconds to import torch. With --ranks one process forks
        all ranks; the names of the switches that they send to, by rank, may follow.
        """
        words = [f"--job={job}", f"--seeds={self.seeds}", *(f"--variant={name}" for name in self.variants)]
        return ["-m", MODULE, *words, *([f"--epochs={self.epochs}"] if self.epochs else [])]


class Output:
    """What the workers print: the results of rank 0, and its progress, which `say` gets with the training's name."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.results: list[Result] = []
        self._say, self._name = say, ""

    def on_line(self, rank: int, line: str) -> None:
        """Take a line of a rank."""
        if rank:
            return
        if line.startswith("{"):
            self.results.append(json.loads(line))
        elif line.startswith(BEGINS):
            self._name = line.removeprefix(BEGINS)
        elif line.startswith("step "):
            self._say(f"{self._name}: {line}")


def train(children: Children, plan: Plan, job: str, system: System, say: Callable[[str], None]) -> list[Result]:
    """Do the plan's trainings with WORLD_SIZE workers; `say` gets lines of progress.

    Raises ProcessError when a worker fails, a switch or the controller ends, or nothing is printed for STALL_S.
    """
    switches = [system.switch_of(rank, WORLD_SIZE) for rank in range(WORLD_SIZE)] if system.leaves else []
    command = [sys.executable, "-P", *plan.command(job), f"--ranks={WORLD_SIZE}", *switches]
    env = {
        "OMP_NUM_THREADS": "1",
        "P4REDUCE_CONTROLLER": system.controller,
        "P4REDUCE_HOSTS": "off",  # the workers of one machine are to use the switch
        "PYTHONUNBUFFERED": "1",
    }
    if sys.platform == "linux":
        env["GLOO_SOCKET_IFNAME"] = "lo"  # the host's own name need not resolve
    workers, output = children.start("workers", command, env), Output(say)
    follow([workers], output.on_line, system.check, stall_s=STALL_S)
    return output.results
