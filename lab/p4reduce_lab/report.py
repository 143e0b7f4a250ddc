"""The demo's numbers: a table for people, report.json for programs."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.table import Table

from p4reduce_lab.training import WAYS

Run = dict[str, Any]

FLOAT_BYTES = 4


def ring_bytes(runs: list[Run]) -> float:
    """What a ring all-reduce of the dense gradient sends a worker and step: 2(N-1)/N · 4 · D, without
    headers."""
    workers, parameters = runs[0]["world_size"], runs[0]["parameters"]
    return float(2 * (workers - 1) / workers * FLOAT_BYTES * parameters)


def of(runs: list[Run], name: str) -> list[Run]:
    """The runs of one way to train."""
    return [run for run in runs if run["name"] == name]


def values(runs: Iterable[Run], key: str) -> list[float]:
    """One number of each run; empty when one of them has none."""
    found = [run[key] for run in runs]
    return [] if None in found else [float(value) for value in found]


def spread(numbers: list[float], show: Callable[[float], str]) -> str:
    """The mean, and with several numbers how far they lie from it (standard deviation)."""
    if not numbers:
        return "not known"
    text = show(statistics.mean(numbers))
    return f"{text} ± {show(statistics.stdev(numbers))}" if len(numbers) > 1 else text


def ratio(runs: list[Run], ring: float) -> float | None:
    """How many times fewer bytes, up and down together, than the ring's formula; None when not measured."""
    up, down = values(runs, "up_bytes_per_step"), values(runs, "down_bytes_per_step")
    return 2 * ring / (statistics.mean(up) + statistics.mean(down)) if up and down else None


def table(runs: list[Run]) -> Table:
    """The result as people read it."""
    ring = ring_bytes(runs)
    first, seeds = runs[0], len({run["seed"] for run in runs})
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
    for way in WAYS:
        if mine := of(runs, way.name):
            times = ratio(mine, ring)
            shown.add_row(
                way.name,
                spread([100 * one for one in values(mine, "test_accuracy")], "{:.2f}".format) + " %",
                spread(values(mine, "up_bytes_per_step"), "{:,.0f}".format),
                spread(values(mine, "down_bytes_per_step"), "{:,.0f}".format),
                "not known" if times is None else f"{times:.2f}x",
                spread(values(mine, "seconds"), "{:.1f}".format),
                spread(values(mine, "retransmissions"), "{:.0f}".format),
            )
    return shown


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
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


def save(path: Path, runs: list[Run], seconds: float) -> None:
    """Write report.json. `seconds`: what the whole demo took."""
    report = {
        "machine": machine(),
        "demo_seconds": seconds,
        "ring_bytes_formula": ring_bytes(runs),
        "runs": runs,
    }
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
