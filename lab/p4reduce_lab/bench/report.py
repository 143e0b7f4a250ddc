"""What a run found: results.json, thresholds.json and their table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import rich.table
from rich.console import Console

from p4reduce_lab.bench.case import Case, Findings
from p4reduce_lab.bench.store import software
from p4reduce_lab.report import machine, write_json
from p4reduce_runtime import terminal


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
        for one in case.thresholds:
            ratio = ratios.get(one.name)
            results.append(Result(one.name, ratio, one.at_least, ratio is not None and ratio >= one.at_least))
    return results


def write(
    out: Path,
    findings: Mapping[str, Findings],
    why_not: Mapping[str, str],
    results: Sequence[Result],
    *,
    quick: bool,
    seconds: float,
    console: Console,
) -> None:
    """Write all files to the folder `out`, and the table of thresholds to the console."""
    about = {"machine": machine(), "software": software(), "quick": quick, "seconds": seconds}
    document = {**about, "cases": findings, "not_measured": why_not}
    write_json(out / "results.json", msgspec.to_builtins(document))
    write_json(out / "thresholds.json", msgspec.to_builtins(results))
    left_out = {name: why.splitlines()[0] for name, why in why_not.items()}
    for name, why in [*left_out.items(), *(one for found in findings.values() for one in found.skipped.items())]:
        console.print(f"not measured: {name}: {why}", markup=False)
    if results:
        console.print(threshold_table(results, quick))
    console.print(f"{out / 'results.json'} and {out / 'thresholds.json'} written, {seconds:.0f} s in all")


def threshold_table(results: Sequence[Result], quick: bool) -> rich.table.Table:
    """Return the table of all thresholds, a row each, with the measured ratio."""
    held = sum(result.holds for result in results)
    measured = sum(result.ratio is not None for result in results)
    rows = [
        [
            result.name,
            "not measured" if result.ratio is None else f"{result.ratio:.3g}",
            f"{result.at_least:g}",
            "[green]holds[/]" if result.holds else "[red]does not hold[/]",
        ]
        for result in results
    ]
    title = "Thresholds" + (", of a quick run: not final" if quick else "")
    caption = f"{held} hold, {measured - held} do not, {len(results) - measured} were not measured"
    return terminal.table(("ratio of medians within one run", "#measured", "#at least", ""), rows, title, caption)
