"""What a run found: results.json, thresholds.json, their table, and plots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import rich.table
from rich.console import Console

from p4reduce_lab.bench.case import Case, Findings, Series
from p4reduce_lab.bench.store import software
from p4reduce_lab.report import machine, picture, write_json
from p4reduce_lab.training import INSTALL
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
    try:
        pictures = draw(out, [series for found in findings.values() for series in found.series])
    except ImportError as error:
        pictures = []
        console.print(f"no plots: {error}; {INSTALL}", markup=False)
    if results:
        console.print(threshold_table(results, quick))
    written = ", ".join(str(path) for path in (out / "results.json", out / "thresholds.json", *pictures))
    console.print(f"{written} written, {seconds:.0f} s in all")


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


def draw(out: Path, series: Sequence[Series]) -> list[Path]:
    """Draw time over density, where there is more than one; return the file. Raises ImportError without matplotlib.

    There is one panel a link and unit, and one line a peer and pattern.
    """
    points = [point for point in series if "density" in point.at]
    if len({point.at["density"] for point in points}) < 2:
        return []
    path, panels = out / "density.png", _grouped(points, lambda point: (point.link, point.unit))
    with picture(path, len(panels), width=6.5 * len(panels)) as drawn:
        for axes, ((link, unit), shown) in zip(drawn, panels, strict=True):
            for (peer, pattern), line in _grouped(shown, lambda point: (point.peer, point.at.get("pattern", ""))):
                line = sorted(line, key=lambda point: point.at["density"])
                places, middles = [point.at["density"] for point in line], [median(point.values) for point in line]
                name = f"{peer} {pattern}".strip()
                if len(line) == 1:  # the same all along
                    axes.axhline(middles[0], color="#7a7f87", linestyle="--", label=name)
                    continue
                axes.plot(places, middles, marker="o", label=name)
                low, high = [min(point.values) for point in line], [max(point.values) for point in line]
                axes.fill_between(places, low, high, alpha=0.15)
            axes.set(
                title=link, xlabel="share of the blocks that are not zero", ylabel=unit, xscale="log", yscale="log"
            )
            axes.title.set_fontsize(9)
            axes.legend(frameon=False, fontsize=8)
    return [path]


def _grouped(series: Iterable[Series], key: Callable[[Series], Any]) -> list[tuple[Any, list[Series]]]:
    groups: dict[Any, list[Series]] = {}
    for point in series:
        groups.setdefault(key(point), []).append(point)
    return list(groups.items())
