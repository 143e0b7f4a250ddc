"""The results of all runs, read from their files and from docs/study.json."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from p4reduce_lab.report import mean_and_range
from p4reduce_lab.study.grid import GROUPS, SEEDS, TASKS, VARIANTS, WARMUP_STEPS, Task, Variant, runs

Record = dict[str, Any]
Records = Sequence[Record]


def read(results: Path, kept: Path | None = None) -> list[Record]:
    """Read the records of all finished runs, in the grid's order: from RESULTS, else those kept in docs/study.json."""
    everything = json.loads(kept.read_text(encoding="utf-8")) if kept and kept.exists() else []
    everything += [json.loads(path.read_text(encoding="utf-8")) for path in results.glob("*.json")]
    found = {record["id"]: record for record in everything if is_current(record)}
    return [found[run.id] for run in runs() if run.id in found]


def is_current(record: Record) -> bool:
    """Return whether a record is of the grid's present settings; others count as not there."""
    return record["model"] in TASKS and record["settings"] == TASKS[record["model"]].settings


class Group:
    """The runs of one configuration, one for each seed."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = list(records)
        self._steps = [step for record in self.records for step in record["switch"]]

    def __bool__(self) -> bool:
        return bool(self.records)

    @property
    def task(self) -> Task:
        return TASKS[self.records[0]["model"]]

    @property
    def variant(self) -> Variant:
        return VARIANTS[self.records[0]["variant"]]

    def mean(self) -> float:
        """Return the mean accuracy in %, or loss in nats a character; NaN where all diverged, or there are none."""
        known = [result for result in self._results() if result is not None]
        return mean(known) if known else math.nan

    def text(self) -> str:
        """Return the results as in the tables: mean (least to most)."""
        missing = f", {len(self.records)} seeds" if 1 < len(self.records) < len(SEEDS) else ""
        return mean_and_range(self._results(), self.task.digits) + missing

    def _results(self) -> list[float | None]:
        return [record[TASKS[record["model"]].measure] for record in self.records]

    def rate(self, kind: str = "all") -> float | None:
        """Return the effective compression rate of a kind of layer, or of all; over the seeds, the mean."""
        return _mean(record["rates"][kind] for record in self.records if kind in record["rates"])

    def bytes_a_step(self, what: str) -> float | None:
        """Return bytes_up or bytes_down of a worker and step after the dense ones, over steps that took the switch."""
        return _mean(step[what] for step in self._steps if step["step"] >= WARMUP_STEPS)

    def least_bytes_down(self) -> float | None:
        """Return the bytes of the cheapest step: that in which nothing had to be sent again."""
        return min((step["bytes_down"] for step in self._steps), default=None)

    def bytes_down(self) -> float | None:
        """Return the least for whole gradients, which differ in what was sent again alone; else the mean."""
        whole = self and self.records[0]["variant"] in ("dense", *GROUPS["rounded"])
        return self.least_bytes_down() if whole else self.bytes_a_step("bytes_down")

    def bytes_down_with_warmup(self) -> float | None:
        """Return the mean over the training, its dense steps at the beginning included."""
        dense_steps = self.variant.options.get("warmup_steps", 0)
        later = _mean(step["bytes_down"] for step in self._steps if step["step"] >= dense_steps)
        first = _mean(step["bytes_down"] for step in self._steps if step["step"] < dense_steps)
        if later is None or (dense_steps and first is None):
            return None
        part = float(dense_steps / self.task.steps)
        return part * (first or 0.0) + (1 - part) * later

    def residue(self, part: float) -> float | None:
        """Return the residue's norm at this part (0 to 1) of the training; the mean over seeds."""
        norms = [record["residue_norm"] for record in self.records if record["residue_norm"]]
        return _mean(points[round(part * (len(points) - 1))][1] for points in norms)


def select(records: Iterable[Record], **wanted: object) -> Group:
    """Return the records with these fields, like model="mnist-mlp", workers=4, optimizer="sgd", variant="dense"."""
    return Group([record for record in records if all(record[key] == value for key, value in wanted.items())])


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return float(mean(known)) if known else None
