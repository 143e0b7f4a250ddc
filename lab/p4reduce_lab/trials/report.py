"""docs/trials.json, and the tables that are made of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from p4reduce_lab.report import Table, mean_and_range, write_records
from p4reduce_lab.trials import layer_parallel, lgc

Record = dict[str, Any]
RECORDS = "trials.json"


def read(docs: Path) -> list[Record]:
    """Read what was recorded; nothing where nothing was."""
    path = docs / RECORDS
    return list(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else []


def keep(records: Sequence[Record], docs: Path) -> None:
    """Write the records, one a line, by trial and seed."""
    ordered = sorted(records, key=lambda record: (record["trial"], record["seed"]))
    write_records(docs / RECORDS, ordered)


def tables(records: Sequence[Record]) -> dict[str, Table]:
    """Return each trial's table."""
    return {"lgc": _lgc(records), "layer-parallel": _layer_parallel(records)}


def _lgc(records: Sequence[Record]) -> Table:
    bits = {lgc.DENSE: "", **{name: variant.bits for name, variant in lgc.VARIANTS.items()}}

    def row(variant: str, found: Sequence[Record]) -> list[str]:
        errors = [record["error"] for record in found if record["error"] is not None]
        return [
            bits[variant],
            mean_and_range([record["accuracy"] for record in found], 2),
            f"{mean(errors):.2f}" if errors else "",
        ]

    heads = ["variant", "bits a value and rank", "accuracy %", "relative error of the mean"]
    return Table(heads, _rows(records, "lgc", bits, row))


def _layer_parallel(records: Sequence[Record]) -> Table:
    def row(name: str, found: Sequence[Record]) -> list[str]:
        variant = layer_parallel.VARIANTS[name]
        return [
            variant.passes,
            f"{variant.ideal_time:.2f}",
            mean_and_range([record["accuracy"] for record in found], 2),
        ]

    heads = ["variant", "passes", "ideal time, serial passes", "accuracy %"]
    return Table(heads, _rows(records, "layer-parallel", layer_parallel.VARIANTS, row))


def _rows(
    records: Sequence[Record], trial: str, variants: Sequence[str] | dict[str, Any], row: Callable[..., list[str]]
) -> list[list[str]]:
    rows = []
    for variant in variants:
        found = [record for record in records if (record["trial"], record["variant"]) == (trial, variant)]
        if found:
            rows.append([variant, *row(variant, found)])
    return rows
