"""The demo itself: start the system, train three ways, compare."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from p4reduce_lab import report
from p4reduce_lab.processes import Children, ProcessError, terminable
from p4reduce_lab.system import System, running_system
from p4reduce_lab.training import WAYS, WORLD_SIZE, Way, train

_NEEDED = ("torch", "sklearn", "matplotlib")
_WIDTH_OF_A_FILE = 130


def run_demo(out: Path, seeds: int = 1, epochs: int | None = None, console: Console | None = None) -> None:
    """Train with gloo, over the switch, and over the switch with AdaComp, `seeds` times each, and compare.

    Writes demo.png, report.json and a folder of logs to `out`, and a table to the terminal. `epochs` None
    is the training script's own number. Raises ProcessError; all processes it started have ended when it
    returns or raises.
    """
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise ProcessError(f"the demo needs {', '.join(missing)}: pip install 'p4reduce[demo]'")
    console = console or _console()
    logs = out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    runs: list[report.Run] = []
    with terminable(), Children(logs) as children:
        console.print("starting a switch and a controller")
        with running_system(children) as system, _progress(console) as bar:
            task = bar.add_task("", total=None)
            plan = [(seed, way) for seed in range(seeds) for way in WAYS]
            for number, (seed, way) in enumerate(plan):

                def moved(step: int, steps: int, number: int = number) -> None:
                    bar.update(task, completed=number * steps + step, total=len(plan) * steps)

                bar.update(task, description=way.name + (f", seed {seed}" if seeds > 1 else ""))
                with _job(system, way, seed) as job:
                    runs.append(
                        train(
                            children,
                            way,
                            seed=seed,
                            epochs=epochs,
                            job=job,
                            controller=system.controller,
                            progress=moved,
                        )
                    )
    from p4reduce_lab.plot import draw

    report.save(out / "report.json", runs, time.monotonic() - began)
    draw(out / "demo.png", runs)
    console.print(report.table(runs))
    console.print(f"{out / 'demo.png'} and {out / 'report.json'} written, {time.monotonic() - began:.0f} s in all")


@contextlib.contextmanager
def _job(system: System, way: Way, seed: int) -> Iterator[str]:
    """A job on the switch for one run; gloo needs none."""
    name = f"{way.name}-{seed}"
    if way.aggregation == "gloo":
        yield name
        return
    system.client.create_job(name, WORLD_SIZE)
    yield name
    system.client.remove_job(name)


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:<24}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("steps"),
        TimeElapsedColumn(),
        console=console,
    )


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDTH_OF_A_FILE)
