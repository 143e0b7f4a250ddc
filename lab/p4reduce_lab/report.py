"""What demo and testbed write: a table, report.json and a picture."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import rich.table
from rich.console import Console

from p4reduce_lab.plot import draw
from p4reduce_lab.results import of, ratio, ring_bytes, values
from p4reduce_lab.tables import Table, machine, mean_and_deviation
from p4reduce_lab.training import VARIANTS, Result


def table(results: list[Result]) -> rich.table.Table:
    """Return the table for a terminal."""
    ring = ring_bytes(results)
    first, seeds = results[0], len({result["seed"] for result in results})
    headings = (
        "run",
        "test accuracy",
        "up, B a worker\nand step",
        "down, B a worker\nand step",
        f"formula 2(N-1)/N·4·D\n= {ring:,.0f} B,\nover measured",
        "training\nseconds",
        "frames\nrepeated",
    )
    rows = []
    for variant in VARIANTS:
        if mine := of(results, variant.name):
            times = ratio(mine, ring)
            accuracies = [100 * share for share in values(mine, "test_accuracy")]
            rows.append(
                [
                    variant.name,
                    mean_and_deviation(accuracies, "{:.2f}".format) + " %",
                    mean_and_deviation(values(mine, "up_bytes_per_step"), "{:,.0f}".format),
                    mean_and_deviation(values(mine, "down_bytes_per_step"), "{:,.0f}".format),
                    "not known" if times is None else f"{times:.2f}x",
                    mean_and_deviation(values(mine, "seconds"), "{:.1f}".format),
                    mean_and_deviation(values(mine, "retransmissions"), "{:.0f}".format),
                ]
            )
    title = f"{first['world_size']} workers, {first['parameters']} parameters, {first['steps']} steps"
    caption = (
        "Bytes are measured on the wire, with all headers: p4reduce's by its workers, gloo's by the "
        "kernel (TCP_INFO).\n"
        "The formula is what a ring all-reduce of the dense gradient has to move, without headers."
    )
    return Table(headings, rows).terminal(
        title + (f", mean ± standard deviation of {seeds} seeds" if seeds > 1 else ""), caption
    )


def save(path: Path, results: list[Result], seconds: float, more: Mapping[str, object]) -> None:
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
    out: Path, results: list[Result], seconds: float, console: Console, more: Mapping[str, object] | None = None
) -> None:
    """Write demo.png and report.json (`save`) to the folder `out`, and a table to the console."""
    save(out / "report.json", results, seconds, more or {})
    draw(out / "demo.png", results)
    console.print(table(results))
    console.print(f"{out / 'demo.png'} and {out / 'report.json'} written, {seconds:.0f} s in all")
