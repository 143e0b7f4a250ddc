"""One training run of the demo: torchrun over examples/train.py."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from p4reduce_lab.processes import POLL_S, Child, Children, ProcessError

WORLD_SIZE = 4
STALL_S = 60.0
"""A run that shows no progress for this long has failed."""
_LAUNCHER = "torch/distributed/elastic/"
_STEP = re.compile(rb"step (\d+)/(\d+) loss")


@dataclass(frozen=True)
class Way:
    """One way to train: who sums, and what is done to the gradients before."""

    name: str
    aggregation: str
    compressor: str


WAYS = (
    Way("gloo-dense", "gloo", "none"),
    Way("p4reduce-dense", "p4reduce", "none"),
    Way("p4reduce-adacomp", "p4reduce", "adacomp"),
)


def find_script() -> Path:
    """The training script: of this checkout, or installed beside the package."""
    checkout = Path(__file__).resolve().parents[2] / "examples" / "train.py"
    installed = Path(sys.prefix) / "share" / "p4reduce" / "examples" / "train.py"
    for path in (checkout, installed):
        if path.is_file():
            return path
    raise ProcessError(f"the training script is neither at {checkout} nor at {installed}: install p4reduce anew")


def train(
    children: Children,
    way: Way,
    *,
    seed: int,
    epochs: int | None,
    job: str,
    controller: str,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    """Train once; what the script measured. `progress(step, steps)` is called as it goes.

    ProcessError when a worker fails, the switch or the controller ends, or nothing moves for STALL_S.
    """
    result = children.logs / f"{way.name}-{seed}.json"
    result.unlink(missing_ok=True)
    options = [f"--aggregation={way.aggregation}", f"--compressor={way.compressor}", f"--job={job}"]
    options += [f"--seed={seed}", f"--out={result}"] + ([f"--epochs={epochs}"] if epochs else [])
    launcher = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    command = [sys.executable, *launcher, f"--nproc-per-node={WORLD_SIZE}", str(find_script()), *options]
    env = {"OMP_NUM_THREADS": "1", "P4REDUCE_CONTROLLER": controller, "PYTHONUNBUFFERED": "1"}
    if sys.platform == "linux":
        env["GLOO_SOCKET_IFNAME"] = "lo"  # the host's own name need not resolve
    workers = children.start(f"{way.name} seed {seed}", command, env, without_launcher)
    _follow(children, workers, progress)
    children.forget(workers)
    if workers.status != 0:
        raise workers.failure(f"failed with status {workers.status}")
    measured = json.loads(result.read_text(encoding="utf-8"))
    assert isinstance(measured, dict)
    return {"name": way.name, **measured}


def without_launcher(lines: list[str]) -> list[str]:
    """The workers' part of a log of torchrun, which ends in a long report of its own; of that, who failed."""
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
            steps = _STEP.findall(text)
            if steps and int(steps[-1][0]) != seen:
                seen, moved = int(steps[-1][0]), time.monotonic()
                progress(seen, int(steps[-1][1]))
            if ended:
                return
            children.check_others(workers)
            if time.monotonic() - moved > STALL_S:
                raise workers.failure(f"made no progress for {STALL_S:g} s")
            time.sleep(POLL_S)
