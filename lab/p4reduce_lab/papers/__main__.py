"""`python -m p4reduce_lab.papers`: train what docs/papers.json lacks, then print the tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import click
import torch

from p4reduce_lab import datasets
from p4reduce_lab.papers import layer_parallel, lgc
from p4reduce_lab.report import Table, mean_and_range, write_records

Record = dict[str, Any]
RECORDS = "docs/papers.json"
ROOT = Path(__file__).resolve().parents[3]
SEEDS = (0, 1, 2)
PAPERS: dict[str, Callable[[int, datasets.Images], Iterator[Record]]] = {
    "lgc": lgc.run,
    "layer-parallel": layer_parallel.run,
}


@click.command()
@click.option("--data", "cache", type=click.Path(path_type=Path), default=ROOT / "out/study/data", help="MNIST.")
@click.option("--only", type=click.Choice(list(PAPERS)), help="One of the papers.")
@click.option("--report-only", is_flag=True, help="Train nothing, print the tables of what is there.")
def main(cache: Path, only: str | None, report_only: bool) -> None:
    """Train on one thread, a seed after the other. Started again, it continues with the next seed."""
    records = read()
    if not report_only:
        torch.set_num_threads(1)
        images = datasets.mnist(cache)
        for seed in SEEDS:
            for name in [only] if only else PAPERS:
                if any((record["trial"], record["seed"]) == (name, seed) for record in records):
                    continue
                found: list[Record] = []
                for record in PAPERS[name](seed, images):
                    click.echo(f"{name}, seed {seed}, {record['variant']}: {record['accuracy']}")
                    found.append(record)
                records += found
                write_records(ROOT / RECORDS, sorted(records, key=lambda one: (one["trial"], one["seed"])))
    for table in tables(records).values():
        click.echo(f"\n{table.markdown()}")


def read() -> list[Record]:
    """Read what was recorded; nothing where nothing was."""
    path = ROOT / RECORDS
    return list(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else []


def tables(records: Sequence[Record]) -> dict[str, Table]:
    """Return each trial's table, a row for each variant that was trained."""
    bits = {lgc.DENSE: "", **{name: bits for name, (_, bits) in lgc.VARIANTS.items()}}
    passes = {name: (own.passes, f"{own.ideal_time:.2f}") for name, own in layer_parallel.VARIANTS.items()}
    lgc_rows, parallel_rows = [], []
    for name, of_variant in bits.items():
        if found := _of(records, "lgc", name):
            errors = [record["error"] for record in found if record["error"] is not None]
            lgc_rows.append([name, of_variant, _accuracy(found), f"{mean(errors):.2f}" if errors else ""])
    for name, about in passes.items():
        if found := _of(records, "layer-parallel", name):
            parallel_rows.append([name, *about, _accuracy(found)])
    return {
        "lgc": Table(["variant", "bits a value and rank", "accuracy %", "relative error of the mean"], lgc_rows),
        "layer-parallel": Table(["variant", "passes", "ideal time, serial passes", "accuracy %"], parallel_rows),
    }


def _of(records: Sequence[Record], trial: str, variant: str) -> list[Record]:
    return [record for record in records if (record["trial"], record["variant"]) == (trial, variant)]


def _accuracy(found: Sequence[Record]) -> str:
    return mean_and_range([record["accuracy"] for record in found], 2)


if __name__ == "__main__":
    main()
