"""`python -m p4reduce_lab.trials`: train what docs/trials.json lacks, then print the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import torch

from p4reduce_lab import datasets
from p4reduce_lab.trials import layer_parallel, lgc
from p4reduce_lab.trials.report import Record, keep, read, tables

ROOT = Path(__file__).resolve().parents[3]
SEEDS = (0, 1, 2)
TRIALS: dict[str, Callable[[int, datasets.Images], Iterator[Record]]] = {
    "lgc": lgc.run,
    "layer-parallel": layer_parallel.run,
}


@click.command()
@click.option("--data", "cache", type=click.Path(path_type=Path), default=ROOT / "out/study/data", help="MNIST.")
@click.option("--only", type=click.Choice(list(TRIALS)), help="One of the trials.")
@click.option("--report-only", is_flag=True, help="Train nothing, print the tables of what is there.")
def main(cache: Path, only: str | None, report_only: bool) -> None:
    """Run the trials on one thread, a seed after the other. Started again, it continues with the next seed."""
    records = read(ROOT / "docs")
    if not report_only:
        torch.set_num_threads(1)
        images = _mnist(cache)
        for seed in SEEDS:
            for name in [only] if only else TRIALS:
                if any((record["trial"], record["seed"]) == (name, seed) for record in records):
                    continue
                found: list[dict[str, Any]] = []
                for record in TRIALS[name](seed, images):
                    click.echo(f"{name}, seed {seed}, {record['variant']}: {record['accuracy']}")
                    found.append(record)
                records += found
                keep(records, ROOT / "docs")
    for table in tables(records).values():
        click.echo(f"\n{table.markdown()}")


def _mnist(cache: Path) -> datasets.Images:
    try:
        return datasets.mnist(cache)
    except datasets.DataError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
