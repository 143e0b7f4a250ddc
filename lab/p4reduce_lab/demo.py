"""The demo itself: start the system, train all variants, compare."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from p4reduce_lab import report, tables
from p4reduce_lab.processes import Children, ProcessError, terminable
from p4reduce_lab.system import running_system
from p4reduce_lab.training import VARIANTS, WORLD_SIZE, Training, missing_packages, train
from p4reduce_runtime import kernels

_WIDTH_OF_A_FILE = 130


def run_demo(
    out: Path,
    seeds: int = 1,
    epochs: int | None = None,
    console: Console | None = None,
    pipeline: str = "default",
) -> None:
    """Train with gloo, over the switch, and over the switch with AdaComp, `seeds` times each, and compare.

    Writes demo.png, report.json and a folder of logs to `out`, and a table to the terminal. `epochs` None is the
    training script's own number, `pipeline` a geometry's name or the folder of a compiled program. Raises ProcessError;
    all processes it started have ended when it returns or raises.
    """
    if missing := missing_packages():
        raise ProcessError(f"the demo needs {', '.join(missing)}: pip install 'p4reduce[demo]'")
    console = console or tables.console(_WIDTH_OF_A_FILE)
    logs = out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    try:
        for package, seconds in kernels.warm():  # now, so that it is in no training's time
            console.print(f"compiled {package} in {seconds:.0f} s, once on this machine")
    except kernels.NotCachedError as error:
        console.print(f"kernels are compiled in each training, since they cannot be kept: {error}")
    plan = [Training(variant, seed, epochs, logs) for seed in range(seeds) for variant in VARIANTS]
    with terminable(), Children(logs) as children:
        console.print("starting a switch and a controller")
        with running_system(children, pipeline) as system, system.job("demo", WORLD_SIZE) as job:
            console.print(f"starting {WORLD_SIZE} workers")
            with _progress(console) as bar:
                task = bar.add_task("", total=None)

                def show(training: Training, step: int, steps: int) -> None:
                    about = training.variant.name + (f", seed {training.seed}" if seeds > 1 else "")
                    done = plan.index(training) * steps + step
                    bar.update(task, description=about, completed=done, total=len(plan) * steps)

                results = train(children, plan, job, system.controller, show)
    report.write(out, results, time.monotonic() - began, console)


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:<24}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("steps"),
        TimeElapsedColumn(),
        console=console,
    )
