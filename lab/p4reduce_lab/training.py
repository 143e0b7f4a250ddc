"""The variants of the training in examples/train.py, and a run of several on this machine."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from p4reduce_lab.errors import LabError
from p4reduce_lab.processes import Children, ProcessError, follow

WORLD_SIZE = 4
_STEP = re.compile(r"step (\d+)/(\d+) loss")
"""A line of progress that rank 0 prints."""
_TRAINING = re.compile(r"training (\d+)/(\d+): ")
"""The line that rank 0 prints when it begins a training."""
STALL_S = 180.0
"""A run that prints nothing for this long has failed."""
MODULE = "p4reduce_lab.measured_training"
NEEDED = ("torch", "sklearn", "matplotlib")
"""Packages that training and plots need beside p4reduce's own dependencies."""
INSTALL = "in the checkout: pip install '.[demo]'"  # an index may have another project of this name

Result = dict[str, Any]
"""The measurements of a training (measured_training.py), and the "name" of its variant."""


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
    """Return the training script: of this checkout, or installed beside the package. Raises LabError."""
    checkout = Path(__file__).resolve().parents[2] / "examples" / "train.py"
    installed = Path(sys.prefix) / "share" / "p4reduce" / "examples" / "train.py"
    for path in (checkout, installed):
        if path.is_file():
            return path
    raise LabError(f"the training script is neither at {checkout} nor at {installed}: install p4reduce anew")


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


Progress = Callable[[Training, int, int], None]
"""Takes a training, a step that it has done, and how many it will do."""


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
    progress: Progress,
    switches: Sequence[str] = (),
) -> list[Result]:
    """Do these trainings with WORLD_SIZE workers; `progress` is called as they go.

    `switches` are those that the workers send to, by rank, where there are several.
    Raises ProcessError when a worker fails, the switch or the controller ends, or nothing is printed for STALL_S.
    """
    command = [sys.executable, "-P", *worker_command(trainings, job), str(WORLD_SIZE), *switches]
    env = {
        "OMP_NUM_THREADS": "1",
        "P4REDUCE_CONTROLLER": controller,
        "P4REDUCE_HOSTS": "off",  # the workers of one machine are to use the switch
        "PYTHONUNBUFFERED": "1",
    }
    if sys.platform == "linux":
        env["GLOO_SOCKET_IFNAME"] = "lo"  # the host's own name need not resolve
    workers = children.start("workers", command, env)
    on_line = progress_of(trainings, progress)
    try:
        follow([workers], on_line, lambda: children.check_others(workers), stall_s=STALL_S)
    finally:
        if workers.status is not None:
            children.forget(workers)
    return [training.result() for training in trainings]


def quarters(say: Callable[[str], None]) -> Progress:
    """Return what says each quarter of a training that is done."""
    said: tuple[Training, int] | None = None

    def progress(training: Training, step: int, steps: int) -> None:
        nonlocal said
        quarter = 4 * step // steps
        if quarter and (training, quarter) != said:
            said = training, quarter
            say(f"{training.variant.name}, seed {training.seed}: step {step}/{steps}")

    return progress


def progress_of(trainings: Sequence[Training], progress: Progress) -> Callable[[int, str], None]:
    """Return what takes a rank and a line that it has written, and reports the steps of rank 0."""
    at = 0

    def on_line(rank: int, line: str) -> None:
        nonlocal at
        if rank:
            return
        if match := _TRAINING.match(line):
            at = int(match[1]) - 1
        elif match := _STEP.match(line):
            progress(trainings[at], int(match[1]), int(match[2]))

    return on_line
