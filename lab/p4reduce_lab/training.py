"""The variants of the training in examples/train.py, and one run of it on this machine, by torchrun."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from p4reduce_lab.processes import POLL_S, Child, Children, ProcessError
from p4reduce_lab.system import System

WORLD_SIZE = 4
STALL_S = 60.0
"""A run that shows no progress for this long has failed."""
_LAUNCHER = "torch/distributed/elastic/"
STEP = re.compile(rb"step (\d+)/(\d+) loss")
"""What a training prints as it goes."""
MODULE = "p4reduce_lab.measured_training"
NEEDED = ("torch", "sklearn", "matplotlib")
"""What has to be installed beside p4reduce's own needs, to train and to draw."""

Result = dict[str, Any]
"""What a training measured (measured_training.py), and the "name" of its variant."""


@dataclass(frozen=True)
class Variant:
    """One way to train: who sums, and what is done to the gradients before."""

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
        """What its job is called."""
        return f"{self.variant.name}-{self.seed}"

    def command(self) -> list[str]:
        """Return what a worker runs, as arguments of the interpreter. An older result is deleted."""
        self._path.unlink(missing_ok=True)
        variant = self.variant
        options = [f"--aggregation={variant.aggregation}", f"--compressor={variant.compressor}", f"--job={self.name}"]
        options += [f"--seed={self.seed}", f"--out={self._path}"]
        return ["-m", MODULE, *options] + ([f"--epochs={self.epochs}"] if self.epochs else [])

    def job(self, system: System, world_size: int) -> contextlib.AbstractContextManager[object]:
        """Return the context it runs in: a job on the switch; gloo needs none."""
        return contextlib.nullcontext() if self.variant.aggregation == "gloo" else system.job(self.name, world_size)

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


def train(children: Children, training: Training, controller: str, progress: Callable[[int, int], None]) -> Result:
    """Train once with WORLD_SIZE workers; `progress(step, steps)` is called as it goes.

    Raises ProcessError when a worker fails, the switch or the controller ends, or nothing moves for STALL_S.
    """
    launcher = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    command = [sys.executable, *launcher, f"--nproc-per-node={WORLD_SIZE}", *training.command()]
    env = {"OMP_NUM_THREADS": "1", "P4REDUCE_CONTROLLER": controller, "PYTHONUNBUFFERED": "1"}
    if sys.platform == "linux":
        env["GLOO_SOCKET_IFNAME"] = "lo"  # the host's own name need not resolve
    workers = children.start(f"{training.variant.name} seed {training.seed}", command, env, without_launcher)
    _follow(children, workers, progress)
    children.forget(workers)
    if workers.status != 0:
        raise workers.failure(f"failed with status {workers.status}")
    return training.result()


def without_launcher(lines: list[str]) -> list[str]:
    """Return the workers' part of a log of torchrun, which ends in a long report of its own; of that, who failed."""
    launcher = [number for number, line in enumerate(lines) if _LAUNCHER in line]
    if not launcher:
        return lines
    return lines[: launcher[0]] + [lines[number] for number in launcher if "failed (exitcode" in lines[number]]


def _follow(children: Children, workers: Child, progress: Callable[[int, int], None]) -> None:
    """Report steps from the log until the workers end."""
    moved = time.monotonic()
    seen = -1
    with workers.log.open("rb") as log:
        text = b""
        while True:
            ended = workers.status is not None  # looked at before the log: nothing written is missed
            text = text[-200:] + log.read()
            steps = STEP.findall(text)
            if steps and int(steps[-1][0]) != seen:
                seen, moved = int(steps[-1][0]), time.monotonic()
                progress(seen, int(steps[-1][1]))
            if ended:
                return
            children.check_others(workers)
            if time.monotonic() - moved > STALL_S:
                raise workers.failure(f"made no progress for {STALL_S:g} s")
            time.sleep(POLL_S)
