"""The demo itself: start the system, train all variants, compare."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console

from p4reduce_lab import demo_report
from p4reduce_lab.errors import LabError
from p4reduce_lab.processes import Children, terminable
from p4reduce_lab.system import System, running_system
from p4reduce_lab.training import INSTALL, WORLD_SIZE, Plan, Result, missing_packages, train
from p4reduce_runtime import kernels, terminal

_WIDTH_OF_A_FILE = 130


def run_demo(
    out: Path,
    seeds: int = 1,
    epochs: int | None = None,
    console: Console | None = None,
    pipeline: str = "default",
    racks: int = 1,
    drop_chance: float = 0.0,
) -> None:
    """Train with gloo, over the switch, and over the switch with AdaComp, `seeds` times each, and compare.

    Writes demo.png, report.json and a folder of logs to `out`, and a table to the terminal. `epochs` None is the
    training script's own number, `pipeline` a geometry's name or the folder of a compiled program. With several `racks`
    each has a switch of its own, below a root, and the bytes between the switches are printed too. `drop_chance` is
    that of each frame between workers and switch to be lost. Raises LabError; all processes it started have ended when
    it returns or raises.
    """
    if missing := missing_packages():
        raise LabError(f"the demo needs {', '.join(missing)}; {INSTALL}")
    console = console or terminal.console(_WIDTH_OF_A_FILE, markup=True)
    logs = out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    compile_ahead(console)
    with terminable(), Children(logs) as children:
        console.print(f"starting {f'{racks + 1} switches' if racks > 1 else 'a switch'} and a controller")
        with (
            running_system(children, pipeline, racks, drop_chance=drop_chance) as system,
            system.job("demo", WORLD_SIZE) as job,
        ):
            console.print(f"starting {WORLD_SIZE} workers")
            results = train(children, Plan(seeds, epochs), job, system, console.print)
            trunks = trunk_bytes(system, job, results) if racks > 1 else None
    demo_report.write(out, results, time.monotonic() - began, console, {"trunks": trunks} if trunks else None)
    if trunks is not None:
        up, down, ranks_up, ranks_down = trunks.values()
        console.print(
            f"Between the switches: {up:,} B up ({up / ranks_up:.3f} of what the ranks sent, {ranks_up:,.0f} B) and "
            f"{down:,} B down ({down / ranks_down:.3f} of what the ranks received, {ranks_down:,.0f} B).",
            soft_wrap=True,
        )


def compile_ahead(console: Console) -> None:
    """Compile kernels now, so that it is in no training's time."""
    try:
        for package, seconds in kernels.warm():
            console.print(f"compiled {package} in {seconds:.0f} s, once on this machine")
    except kernels.NotCachedError as error:
        console.print(f"kernels are compiled in each process, since they cannot be kept: {error}")


def trunk_bytes(system: System, job: str, results: list[Result]) -> dict[str, float]:
    """Return the bytes of all trainings over the switches, with all headers: between the switches, and of all ranks.

    "up" is what the root received of the switches below it, "down" what these received of it.
    """
    over_switches = [result for result in results if result["aggregation"] == "p4reduce"]
    ranks_up, ranks_down = (
        sum(result[key] * result["steps"] * result["world_size"] for result in over_switches)
        for key in ("up_bytes_per_step", "down_bytes_per_step")
    )
    up, down = system.trunk_bytes(job)
    return {"up": up, "down": down, "ranks_up": ranks_up, "ranks_down": ranks_down}
