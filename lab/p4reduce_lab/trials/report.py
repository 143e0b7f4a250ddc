"""docs/trials.json, and the tables that are made of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from p4reduce_lab.trials import layer_parallel, lgc

Record = dict[str, Any]
RECORDS = "trials.json"
PAGE = "decisions/11-lgc-and-layer-parallel.md"


def read(docs: Path) -> list[Record]:
    """Read what was recorded; nothing where nothing was."""
    path = docs / RECORDS
    return list(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else []


def keep(records: Sequence[Record], docs: Path) -> None:
    """Write the records, one a line, by trial and seed."""
    ordered = sorted(records, key=lambda record: (record["trial"], record["seed"]))
    lines = ",\n".join(json.dumps(record, separators=(",", ":")) for record in ordered)
    (docs / RECORDS).write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def write_tables(records: Sequence[Record], docs: Path) -> None:
    """Fill the page's tables; its prose stays as it is. Raises ValueError where the page has no place for one."""
    page = docs / PAGE
    text = page.read_text(encoding="utf-8")
    for name, table in {"lgc": _lgc(records), "layer-parallel": _layer_parallel(records)}.items():
        place = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        text, found = place.subn(rf"\g<1>\n{table}\n\n\g<2>", text)
        if not found:
            raise ValueError(f"{page} has no place for a table: <!-- table: {name} --> ... <!-- end -->")
    page.write_text(text, encoding="utf-8")


def _lgc(records: Sequence[Record]) -> str:
    bits = {lgc.DENSE: "", **{name: way.bits for name, way in lgc.WAYS.items()}}

    def row(way: str, found: Sequence[Record]) -> list[str]:
        errors = [record["error"] for record in found if record["error"] is not None]
        return [bits[way], _accuracies(found), f"{mean(errors):.2f}" if errors else ""]

    heads = ["way", "bits a value and rank", "accuracy %", "relative error of the mean"]
    return _table(heads, _rows(records, "lgc", bits, row))


def _layer_parallel(records: Sequence[Record]) -> str:
    def row(name: str, found: Sequence[Record]) -> list[str]:
        way = layer_parallel.WAYS[name]
        return [way.passes, f"{way.ideal_time:.2f}", _accuracies(found)]

    heads = ["way", "passes", "ideal time, serial passes", "accuracy %"]
    return _table(heads, _rows(records, "layer-parallel", layer_parallel.WAYS, row))


def _rows(
    records: Sequence[Record], trial: str, ways: Sequence[str] | dict[str, Any], row: Callable[..., list[str]]
) -> list[list[str]]:
    rows = []
    for way in ways:
        found = [record for record in records if (record["trial"], record["way"]) == (trial, way)]
        if found:
            rows.append([way, *row(way, found)])
    return rows


def _accuracies(records: Sequence[Record]) -> str:
    """Show mean, least and most over the seeds, and how many diverged."""
    values = [record["accuracy"] for record in records if record["accuracy"] is not None]
    lost = len(records) - len(values)
    if not values:
        return "diverged"
    text = f"{mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"
    if len(records) == 1:
        text = f"{values[0]:.2f} (1 seed)"
    return text + (f", {lost} diverged" if lost else "")


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "None of these trainings has been run yet."
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
