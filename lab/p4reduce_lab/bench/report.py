"""What a run found: tables, results.json, thresholds.json and plots."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import rich.table
from rich.console import Console

from p4reduce_lab.bench import thresholds
from p4reduce_lab.bench.case import Case, Findings, Series, show
from p4reduce_lab.bench.numbers import median
from p4reduce_lab.bench.store import software
from p4reduce_lab.report import Table, machine
from p4reduce_lab.training import INSTALL


def write(
    out: Path,
    cases: Sequence[Case],
    findings: Mapping[str, Findings],
    why_not: Mapping[str, str],
    results: Sequence[thresholds.Result],
    *,
    quick: bool,
    seconds: float,
    console: Console,
) -> None:
    """Write all files to the folder `out`, and tables to the console."""
    document = {
        "machine": machine(),
        "software": software(),
        "quick": quick,
        "seconds": seconds,
        "cases": {name: found.document() for name, found in findings.items()},
        "not_measured": dict(why_not),
    }
    (out / "results.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    thresholds.write(out / "thresholds.json", results)
    for case in cases:
        if case.name in findings:
            console.print(case_table(case, findings[case.name]))
    for name, why in _left_out(findings, why_not).items():
        console.print(f"not measured: {name}: {why}", markup=False)
    pictures = _draw(out, findings, console)
    if results:
        console.print(threshold_table(results, quick))
    written = ", ".join(str(path) for path in (out / "results.json", out / "thresholds.json", *pictures))
    console.print(f"{written} written, {seconds:.0f} s in all")


def case_table(case: Case, found: Findings) -> rich.table.Table:
    """Return the table of one case, a row a series."""
    sized = any(series.size for series in found.series)
    headings = ["what", "link", "by", "median", "least to most", "times"]
    headings += ["algbw GB/s", "busbw GB/s"] if sized else []
    headings += ["counted on the way"]
    shown = Table(headings, [_row(series, sized) for series in found.series])
    return shown.terminal(f"{case.name}: {case.about}", "\n".join(found.notes), left=(0, 1, 2, len(headings) - 1))


def threshold_table(results: Sequence[thresholds.Result], quick: bool) -> rich.table.Table:
    """Return the table of thresholds."""
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
    return Table(("ratio of medians within one run", "measured", "at least", ""), rows).terminal(title, caption)


def _row(series: Series, sized: bool) -> list[str]:
    counted = "; ".join(f"{name} {show(value)}" for name, value in series.counted.items())
    spread = f"{show(min(series.values))} to {show(max(series.values))}"
    middle = f"{show(median(series.values))} {series.unit}"
    row = [series.what, series.link, series.peer, middle, spread, str(len(series.values))]
    if sized:
        row += [show(series.algbw), show(series.busbw)] if series.size else ["", ""]
    return [*row, counted]


def _left_out(findings: Mapping[str, Findings], why_not: Mapping[str, str]) -> dict[str, str]:
    left = {name: why.splitlines()[0] for name, why in why_not.items()}
    return left | {what: why for found in findings.values() for what, why in found.skipped.items()}


def _draw(out: Path, findings: Mapping[str, Findings], console: Console) -> list[Path]:
    """Draw what can be drawn; without matplotlib nothing, with a message."""
    try:
        from p4reduce_lab.bench.plot import draw
    except ImportError as error:
        console.print(f"no plots: {error}; {INSTALL}", markup=False)
        return []
    return draw(out, [series for found in findings.values() for series in found.series])
