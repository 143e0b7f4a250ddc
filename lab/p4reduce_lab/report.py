"""What trainings measured: a table for people, report.json for programs, and a picture."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from p4reduce_lab.plot import draw
from p4reduce_lab.results import of, ratio, ring_bytes, spread, values
from p4reduce_lab.training import VARIANTS, Result


def table(results: list[Result]) -> Table:
    """Make the table that people read."""
    ring = ring_bytes(results)
    first, seeds = results[0], len({result["seed"] for result in results})
    shown = Table(
        title=f"{first['world_size']} workers, {first['parameters']} parameters, {first['steps']} steps"
        + (f", mean ± standard deviation of {seeds} seeds" if seeds > 1 else ""),
        caption="Bytes are measured on the wire, with all headers: p4reduce's by its workers, gloo's by the "
        "kernel (TCP_INFO).\nThe formula is what a ring all-reduce of the dense gradient has to move, without headers.",
        caption_justify="left",
    )
    shown.add_column("run", no_wrap=True)
    for heading in (
        "test accuracy",
        "up, B a worker\nand step",
        "down, B a worker\nand step",
        f"formula 2(N-1)/N·4·D\n= {ring:,.0f} B,\nover measured",
        "training\nseconds",
        "frames\nrepeated",
    ):
        shown.add_column(heading, justify="right")
    for variant in VARIANTS:
        if mine := of(results, variant.name):
            times = ratio(mine, ring)
            shown.add_row(
                variant.name,
                spread([100 * share for share in values(mine, "test_accuracy")], "{:.2f}".format) + " %",
                spread(values(mine, "up_bytes_per_step"), "{:,.0f}".format),
                spread(values(mine, "down_bytes_per_step"), "{:,.0f}".format),
                "not known" if times is None else f"{times:.2f}x",
                spread(values(mine, "seconds"), "{:.1f}".format),
                spread(values(mine, "retransmissions"), "{:.0f}".format),
            )
    return shown


def machine() -> dict[str, Any]:
    """Return what the numbers were measured on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": cores,
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def save(path: Path, results: list[Result], seconds: float, more: Mapping[str, Any]) -> None:
    """Write report.json. `seconds`: what all of it took; `more` goes into it too."""
    document = {
        "machine": machine(),
        "demo_seconds": seconds,
        "ring_bytes_formula": ring_bytes(results),
        "runs": results,
        **more,
    }
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def write(
    out: Path, results: list[Result], seconds: float, console: Console, more: Mapping[str, Any] | None = None
) -> None:
    """Write demo.png and report.json (`save`) to the folder `out`, and a table to the console."""
    save(out / "report.json", results, seconds, more or {})
    draw(out / "demo.png", results)
    console.print(table(results))
    console.print(f"{out / 'demo.png'} and {out / 'report.json'} written, {seconds:.0f} s in all")


def console(width_of_a_file: int) -> Console:
    """Return the terminal, or standard output as a file of that width."""
    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(highlight=False, width=width_of_a_file)
