"""Train everything in grid.toml that has no result yet, two at a time, beside one switch and controller for all."""

from __future__ import annotations

import json
import multiprocessing
import multiprocessing.queues
import queue
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any, TypeAlias

import click
import torch
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from p4reduce_lab import datasets
from p4reduce_lab.processes import Children, terminable
from p4reduce_lab.study import hooks, sparsity
from p4reduce_lab.study.grid import SEEDS, TASKS, VARIANTS, Run
from p4reduce_lab.study.train import train
from p4reduce_lab.system import running_system

POLL_S = 0.5

Steps: TypeAlias = "multiprocessing.queues.Queue[tuple[str, int, int]]"
"""(run, step, steps) as the processes of the pool go."""

_progress: Steps | None = None


def _begin(progress: Steps) -> None:
    """Begin a new process of the pool."""
    global _progress
    _progress = progress
    torch.set_num_threads(1)


def _run(run: Run, cache: Path, controller: str) -> dict[str, Any]:
    def progress(step: int, steps: int) -> None:
        assert _progress is not None
        _progress.put((run.id, step, steps))

    if TASKS[run.model].model == "plays-words":
        return sparsity.train(run, cache, controller, progress)
    if VARIANTS[run.variant].hook:
        return hooks.train(run, cache)
    return train(run, cache, controller if run.seed == SEEDS[0] else None, progress)


def train_all(missing: list[Run], out: Path, jobs: int) -> int:
    """Train, and write results to OUT/runs, a file a run, logs and data beside it. Return how many runs failed."""
    cache = out / "data"
    click.echo("loading MNIST and Shakespeare's plays")
    datasets.mnist(cache)
    datasets.shakespeare(cache)
    context = multiprocessing.get_context("spawn")
    steps: Steps = context.Queue()
    failed = 0
    logs = out / "logs"
    logs.mkdir(exist_ok=True)
    columns = TextColumn("{task.description:40}"), BarColumn(), TextColumn("{task.completed}/{task.total}")
    with (
        terminable(),
        Children(logs) as children,
        running_system(children) as system,
        Progress(*columns, TimeElapsedColumn()) as bars,
        ProcessPoolExecutor(jobs, context, _begin, (steps,)) as pool,
    ):
        everything = bars.add_task("all runs", total=len(missing))
        shown: dict[str, TaskID] = {}
        futures: dict[Future[dict[str, Any]], Run] = {}
        waiting = list(reversed(missing))
        try:
            while waiting or futures:
                while waiting and len(futures) < jobs:
                    run = waiting.pop()
                    futures[pool.submit(_run, run, cache, system.controller)] = run
                done, _ = wait(futures, POLL_S, FIRST_COMPLETED)
                _show(steps, bars, shown)
                for future in done:
                    run = futures.pop(future)
                    if (bar := shown.pop(run.id, None)) is not None:
                        bars.remove_task(bar)
                    bars.advance(everything)
                    try:
                        _write(future.result(), out / "runs" / f"{run.id}.json")
                    except Exception as error:  # one run's: the others continue
                        failed += 1
                        bars.console.print(f"{run.id} failed: {type(error).__name__}: {error}")
                system.check()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise
    return failed


def _show(steps: Steps, bars: Progress, shown: dict[str, TaskID]) -> None:
    while True:
        try:
            name, step, total = steps.get_nowait()
        except queue.Empty:
            return
        if name not in shown:
            shown[name] = bars.add_task(name, total=total)
        bars.update(shown[name], completed=step)


def _write(result: dict[str, Any], path: Path) -> None:
    """Write the file atomically, for a study that is interrupted."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(result), encoding="utf-8")
    partial.replace(path)
