"""The variants of the training in examples/train.py, and a run of several on this machine."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from p4reduce_lab.processes import POLL_S, Child, Children, LogReader, ProcessError

WORLD_SIZE = 4
STALL_S = 180.0
"""A run that shows no progress for this long has failed."""
STEP = re.compile(r"step (\d+)/(\d+) loss")
"""A line of progress that rank 0 prints."""
TRAINING = re.compile(r"training (\d+)/(\d+): ")
"""What rank 0 prints when it begins a training."""
MODULE = "p4reduce_lab.measured_training"
NEEDED = ("torch", "sklearn", "matplotlib")
"""Packages that training and plots need beside p4reduce's own dependencies."""
INSTALL = "in the checkout: pip install '.[demo]'"  # an index may have another project of this name

Result = dict[str, Any]
"""What a training measured (measured_training.py), and the "name" of its variant."""


@dataclass(frozen=True)
class Variant:
    """A variant of the training: what sums the gradients, and their compressor."""

    name: str
    aggregation: str
    compressor: str


VARIANTS = (
    Variant("gloo-dense", "gloo", "none"),
    Variant("p4reduce-dense", "p4reduce", "none"),
    Variant("p4reduce-adacomp", "p4reduce", "adacomp"),
)


def missing_packages() -> list[str]:
    """Return which of NEEDED are not installed."""
    return [name for name in NEEDED if find_spec(name) is None]


def find_script() -> Path:
    """Return the training script: of this checkout, or installed beside the package. Raises ProcessError."""
    checkout = Path(__file__).resolve().parents[2] / "examples" / "train.py"
    installed = Path(sys.prefix) / "share" / "p4reduce" / "examples" / "train.py"
    for path in (checkout, installed):
        if path.is_file():
            return path
    raise ProcessError(f"the training script is neither at {checkout} nor at {installed}: install p4reduce anew")


@dataclass(frozen=True)
class Training:
    """One training to be run: its options, and the file in which it leaves what it measured."""

    variant: Variant
    seed: int
    epochs: int | None  #: None is the script's own number
    folder: Path

    @property
    def name(self) -> str:
        """The name of its result."""
        return f"{self.variant.name}-{self.seed}"

    def options(self, job: str) -> list[str]:
        """Return the options of its worker, which joins `job` if the switch sums. An older result is deleted."""
        self._path.unlink(missing_ok=True)
        options = [f"--aggregation={self.variant.aggregation}", f"--compressor={self.variant.compressor}"]
        options += [f"--job={job}", f"--seed={self.seed}", f"--out={self._path}"]
        return options + ([f"--epochs={self.epochs}"] if self.epochs else [])

    def result(self) -> Result:
        """Read what it measured. Raises ProcessError if it left nothing to read."""
        try:
            measured = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ProcessError(f"{self.name} wrote no result ({error}); its logs are in {self.folder}") from None
        return {"name": self.variant.name, **measured}

    @property
    def _path(self) -> Path:
        return self.folder.resolve() / f"{self.name}.json"


def worker_command(trainings: Sequence[Training], job: str) -> list[str]:
    """Return the arguments of the interpreter for a worker that does these trainings one after the other.

    All of them are done by the same processes, because each start of a worker takes seconds to import torch. With the
    number of ranks as another argument, one process imports torch and forks all ranks; the names of the switches that
    they send to, by rank, may follow.
    """
    path = trainings[0].folder.resolve() / "trainings.json"
    path.write_text(json.dumps([training.options(job) for training in trainings]), encoding="utf-8")
    return ["-m", MODULE, str(path)]


def train(
    children: Children,
    trainings: Sequence[Training],
    job: str,
    controller: str,
    progress: Callable[[Training, int, int], None],
    switches: Sequence[str] = (),
) -> list[Result]:
    """Do these trainings with WORLD_SIZE workers; `progress(training, step, steps)` is called as they go.

    `switches` are those that the workers send to, by rank, where there are several.
    Raises ProcessError when a worker fails, the switch or the controller ends, or there is no progress for STALL_S.
    """
    command = [sys.executable, "-P", *worker_command(trainings, job), str(WORLD_SIZE), *switches]
    env = {"OMP_NUM_THREADS": "1", "P4REDUCE_CONTROLLER": controller, "PYTHONUNBUFFERED": "1"}
    if sys.platform == "linux":
        env["GLOO_SOCKET_IFNAME"] = "lo"  # the host's own name need not resolve
    workers = children.start("workers", command, env)
    _follow(children, workers, trainings, progress)
    children.forget(workers)
    if workers.status != 0:
        raise workers.failure(f"failed with status {workers.status}")
    return [training.result() for training in trainings]


def _follow(
    children: Children,
    workers: Child,
    trainings: Sequence[Training],
    progress: Callable[[Training, int, int], None],
) -> None:
    """Report steps from the log until the workers end."""
    moved = time.monotonic()
    seen = (0, 0)
    with LogReader(workers) as log:
        while True:
            lines, status = log.read()
            for line in lines:
                if match := TRAINING.match(line):
                    seen, moved = (int(match[1]), 0), time.monotonic()
                elif (match := STEP.match(line)) and int(match[1]) != seen[1]:
                    seen, moved = (seen[0], int(match[1])), time.monotonic()
                    progress(trainings[seen[0] - 1], int(match[1]), int(match[2]))
            if status is not None:
                return
            children.check_others(workers)
            if time.monotonic() - moved > STALL_S:
                raise workers.failure(f"made no progress for {STALL_S:g} s")
            time.sleep(POLL_S)
