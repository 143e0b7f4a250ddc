"""Plots of a run: a file for each thing that time or goodput is shown against."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from p4reduce_lab.bench.case import Series
from p4reduce_lab.bench.numbers import median


@dataclass(frozen=True)
class Plot:
    """One picture: the series that have `axis` in their `at`, one panel a link and unit, one line a peer and label."""

    name: str
    axis: str
    along: str
    """The label of the axis."""
    label: str = ""
    """What else distinguishes lines."""
    percent: bool = False
    reversed: bool = False


PLOTS = (
    Plot("density", "density", "blocks that are not zero, %", "pattern", True, True),
    Plot("racks", "simulated ranks", "ranks", "racks"),
)


def draw(out: Path, series: Sequence[Series]) -> list[Path]:
    """Write a PNG for each plot that there are series for; return the files."""
    files = []
    for plot in PLOTS:
        points = [point for point in series if plot.axis in point.at]
        if len({point.at[plot.axis] for point in points}) > 1:
            path = out / f"{plot.name}.png"
            _draw(path, plot, points)
            files.append(path)
    return files


def _draw(path: Path, plot: Plot, series: Sequence[Series]) -> None:
    panels = _grouped(series, lambda point: (point.link, point.unit))
    figure = Figure(figsize=(6.5 * len(panels), 4.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, ((link, unit), shown) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        ticks = sorted({_place(plot, point) for point in shown})
        for (peer, label), line in _grouped(shown, lambda point: (point.peer, str(point.at.get(plot.label, "")))):
            line = sorted(line, key=partial(_place, plot))
            middles = [median(point.values) for point in line]
            name = f"{peer} {label}".strip()
            if len(line) == 1:  # the same all along
                axes.axhline(middles[0], color="#7a7f87", linestyle="--", label=name)
                continue
            places = [_place(plot, point) for point in line]
            (drawn,) = axes.plot(places, middles, marker="o", label=name)
            low, high = [min(point.values) for point in line], [max(point.values) for point in line]
            axes.fill_between(places, low, high, alpha=0.15, color=drawn.get_color())
        axes.set(title=link, xlabel=plot.along, ylabel=unit, xscale="log", yscale="log")
        axes.set_xticks(
            ticks, [f"{tick:g}" if tick < 10000 else f"{tick / 2**20:.3g} M" for tick in ticks], rotation=30
        )
        axes.minorticks_off()
        axes.title.set_fontsize(9)
        if plot.reversed:
            axes.invert_xaxis()
        axes.grid(alpha=0.25)
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, facecolor="white")


def _place(plot: Plot, point: Series) -> float:
    return float(point.at[plot.axis]) * (100 if plot.percent else 1)


def _grouped(series: Iterable[Series], key: Callable[[Series], Any]) -> list[tuple[Any, list[Series]]]:
    groups: dict[Any, list[Series]] = {}
    for point in series:
        groups.setdefault(key(point), []).append(point)
    return list(groups.items())
