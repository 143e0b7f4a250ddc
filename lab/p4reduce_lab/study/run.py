"""Train everything of the grid that has no result yet, a few at a time, beside one switch and controller for all."""

from __future__ import annotations

import json
import multiprocessing
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Final

import click
import torch

from p4reduce_lab import datasets
from p4reduce_lab.processes import Children, terminable
from p4reduce_lab.study.grid import SEEDS, Run
from p4reduce_lab.study.train import train
from p4reduce_lab.system import running_system

_POLL_S: Final = 0.5


def _run(run: Run, cache: Path, controller: str, device: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    return train(run, cache, controller if run.seed == SEEDS[0] else None, device)


def train_all(missing: list[Run], out: Path, jobs: int, device: str) -> int:
    """Train, and write results to OUT/runs, a file a run, logs and data beside it. Return how many runs failed."""
    cache, logs = out / "data", out / "logs"
    click.echo("loading MNIST and Shakespeare's plays")
    datasets.mnist(cache)
    datasets.shakespeare(cache)
    logs.mkdir(exist_ok=True)
    failed = 0
    with (
        terminable(),
        Children(logs) as children,
        running_system(children) as system,
        ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool,
    ):
        futures = {pool.submit(_run, run, cache, system.controller, device): run for run in missing}
        try:
            while futures:
                for future in wait(futures, _POLL_S, FIRST_COMPLETED).done:
                    run = futures.pop(future)
                    number = f"{len(missing) - len(futures)}/{len(missing)}"
                    try:
                        _write(future.result(), out / "runs" / f"{run.id}.json")
                        click.echo(f"{number} {run.id}")
                    except BrokenProcessPool:  # no run goes on
                        raise
                    except Exception as error:  # one run's: the others continue
                        failed += 1
                        click.echo(f"{number} {run.id} failed: {type(error).__name__}: {error}")
                system.check()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise
    return failed


def _write(result: dict[str, Any], path: Path) -> None:
    """Write the file atomically, for a study that is interrupted."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(result), encoding="utf-8")
    partial.replace(path)
