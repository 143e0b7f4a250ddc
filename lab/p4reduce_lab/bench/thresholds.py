"""Thresholds: the ratios that a run should reach, and whether it did."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from p4reduce_lab.bench.case import Case, Findings, Threshold


@dataclass(frozen=True)
class Result:
    """One threshold of thresholds.json. `ratio` None: it was not measured, and so does not hold."""

    name: str
    ratio: float | None
    at_least: float
    holds: bool


def judge(cases: Iterable[Case], findings: Mapping[str, Findings]) -> list[Result]:
    """Return a result for every threshold of these cases; `findings` are those of the cases that ran, by name."""
    results = []
    for case in cases:
        ratios = findings[case.name].ratios if case.name in findings else {}
        results += [_judge(threshold, ratios.get(threshold.name)) for threshold in case.thresholds]
    return results


def _judge(threshold: Threshold, ratio: float | None) -> Result:
    return Result(threshold.name, ratio, threshold.at_least, ratio is not None and ratio >= threshold.at_least)


def write(path: Path, results: Iterable[Result]) -> None:
    """Write thresholds.json."""
    path.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n", encoding="utf-8")
