"""The results of all runs: read from their files, kept as docs/study.json, and summed up for the tables."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from p4reduce_lab.study.grid import SEEDS, TASKS, WARMUP_STEPS, runs
from p4reduce_lab.tables import mean_and_range

Record = dict[str, Any]


def read(results: Path, kept: Path | None = None) -> list[Record]:
    """Read the records of all finished runs, in the grid's order: from RESULTS, else those kept in docs/study.json."""
    everything = json.loads(kept.read_text(encoding="utf-8")) if kept and kept.exists() else []
    everything += [json.loads(path.read_text(encoding="utf-8")) for path in results.glob("*.json")]
    found = {record["id"]: record for record in everything if is_current(record)}
    return [found[run.id] for run in runs() if run.id in found]


def is_current(record: Record) -> bool:
    """Return whether a record is of the grid's present settings; others count as not there."""
    return record["model"] in TASKS and record["settings"] == vars(TASKS[record["model"]])


class Group:
    """The runs of one configuration, one for each seed."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = list(records)

    def __bool__(self) -> bool:
        return bool(self.records)

    def results(self) -> list[float | None]:
        """Return the test accuracy in %, or the test loss in nats a character, by seed; None where it diverged."""
        return [record[TASKS[record["model"]].measure] for record in self.records]

    def mean(self) -> float:
        """Return the mean of the results; NaN where all diverged, or there are none."""
        known = [result for result in self.results() if result is not None]
        return mean(known) if known else math.nan

    def text(self, digits: int) -> str:
        """Return the results as in the tables: mean (least to most)."""
        missing = f", {len(self.records)} seeds" if 1 < len(self.records) < len(SEEDS) else ""
        return mean_and_range(self.results(), digits) + missing

    def rate(self, kind: str) -> float | None:
        """Return the effective compression rate of a kind of layer, or of "all"; over the seeds, the mean."""
        values = [record["rates"][kind] for record in self.records if kind in record["rates"]]
        return mean(values) if values else None

    def bytes_a_step(self, what: str, *, after_warmup: bool = False) -> float | None:
        """Return bytes_up, bytes_down or predicted_bytes_down of a worker and step, over steps that took the switch."""
        steps = [step for record in self.records for step in record["switch"]]
        if after_warmup:
            steps = [step for step in steps if step["step"] >= WARMUP_STEPS]
        values = [step[what] for step in steps if step[what] is not None]
        return mean(values) if values else None

    def least_bytes_down(self) -> float | None:
        """Return the bytes of the cheapest step: for dense gradients, the one in which nothing had to be sent again."""
        return min((step["bytes_down"] for record in self.records for step in record["switch"]), default=None)

    def off_by(self) -> float | None:
        """Return how far the predicted bytes down of a step were off, on average, as a share of the measured."""
        steps = [step for record in self.records for step in record["switch"]]
        known = [step for step in steps if step["predicted_bytes_down"] is not None]
        if not known:
            return None
        shares = [abs(step["predicted_bytes_down"] - step["bytes_down"]) / step["bytes_down"] for step in known]
        return float(mean(shares))

    def residue(self, part: float) -> float | None:
        """Return the residue's norm at this part (0 to 1) of the training; the mean over seeds."""
        values = [record["residue_norm"][round(part * (len(record["residue_norm"]) - 1))][1] for record in self.records]
        return float(mean(values)) if values else None

    def similarity(self, *, with_residues: bool) -> float | None:
        """Return the ranks' leading cosine after the warm-up, the mean over the steps measured and over the seeds."""
        points = (point for record in self.records for point in record.get("similarity", []))
        values = [totals if with_residues else alone for step, alone, totals in points if step >= WARMUP_STEPS]
        return float(mean(values)) if values else None


def select(records: Iterable[Record], **wanted: object) -> Group:
    """Return the records with these fields, like model="mnist-mlp", workers=4, optimizer="sgd", variant="dense"."""
    return Group([record for record in records if all(record[key] == value for key, value in wanted.items())])
