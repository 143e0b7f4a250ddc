"""The picture of a comparison: loss, accuracy and bytes of the variants."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p4reduce_lab.results import of, ring_bytes, values
from p4reduce_lab.training import VARIANTS, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = {"gloo-dense": "#7a7f87", "p4reduce-dense": "#2a78b5", "p4reduce-adacomp": "#e2711d"}
_WIDTHS = {"gloo-dense": 4.5, "p4reduce-dense": 1.6, "p4reduce-adacomp": 1.6}  # two curves coincide: show both
_INK = "#2b2d31"
_WINDOW = 20  # steps the loss is averaged over
_LOOK: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.titlesize": 11,
    "axes.titlepad": 12,
    "xtick.color": _INK,
    "ytick.color": _INK,
}


def draw(path: Path, results: list[Result]) -> None:
    """Write a PNG with three panels."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(_LOOK):
        figure = Figure(figsize=(13, 4.2), dpi=150, layout="constrained")
        FigureCanvasAgg(figure)
        loss, accuracy, wire = figure.subplots(1, 3, width_ratios=(1.25, 1, 1.25))
        _draw_loss(loss, results)
        _draw_accuracy(accuracy, results)
        _draw_bytes(wire, results)
        seeds, first = len({result["seed"] for result in results}), results[0]
        figure.suptitle(
            f"{first['world_size']} workers, {first['parameters']:,} parameters, {first['steps']} steps"
            + (f", {seeds} seeds" if seeds > 1 else ""),
            x=0.01,
            ha="left",
            color=_INK,
        )
        figure.savefig(path, facecolor="white")


def _by_variant(results: list[Result]) -> list[tuple[str, list[Result]]]:
    return [(variant.name, mine) for variant in VARIANTS if (mine := of(results, variant.name))]


def _draw_loss(axes: Axes, results: list[Result]) -> None:
    for name, mine in _by_variant(results):
        curve = [statistics.mean(losses) for losses in zip(*(result["losses"] for result in mine), strict=True)]
        window = min(_WINDOW, len(curve))
        smooth = [statistics.mean(curve[i - window : i]) for i in range(window, len(curve) + 1)]
        axes.plot(range(window, len(curve) + 1), smooth, color=COLORS[name], label=name, linewidth=_WIDTHS[name])
    axes.set(title="Training loss", xlabel="step", yscale="log")
    axes.grid(axis="y", alpha=0.25)
    axes.legend(frameon=False)


def _draw_accuracy(axes: Axes, results: list[Result]) -> None:
    lowest = 100.0
    for at, (name, mine) in enumerate(_by_variant(results)):
        points = [100 * value for value in values(mine, "test_accuracy")]
        mean = statistics.mean(points)
        axes.bar(at, mean, color=COLORS[name], width=0.62)
        if len(points) > 1:
            axes.plot([at] * len(points), points, "o", color=_INK, markersize=4, alpha=0.7)
        axes.annotate(f"{mean:.2f}", (at, max(points)), (0, 5), textcoords="offset points", ha="center", color=_INK)
        lowest = min(lowest, *points)
    floor = max(0.0, 5 * (lowest // 5) - 5)
    axes.set(title=f"Test accuracy, % (axis from {floor:.0f})", ylim=(floor, 100.0))
    _name_bars(axes, results)


def _draw_bytes(axes: Axes, results: list[Result]) -> None:
    tallest = ring = ring_bytes(results) / 1000
    for at, (name, mine) in enumerate(_by_variant(results)):
        for offset, key, alpha in ((-0.2, "up_bytes_per_step", 1.0), (0.2, "down_bytes_per_step", 0.55)):
            if not (found := values(mine, key)):
                continue
            height = statistics.mean(found) / 1000
            tallest = max(tallest, height)
            axes.bar(at + offset, height, width=0.36, color=COLORS[name], alpha=alpha)
            text = f"{key.partition('_')[0]}\n{height:.1f}"
            axes.text(at + offset, height, text, ha="center", va="bottom", color=_INK, fontsize=9)
    axes.axhline(ring, color=_INK, linewidth=1, linestyle=(0, (4, 3)))
    axes.annotate(
        f"a ring's 2(N-1)/N·4·D: {ring:.1f}",
        (2.5, ring),
        (0, 4),
        textcoords="offset points",
        ha="right",
        color=_INK,
        fontsize=9,
    )
    axes.set(title="On the wire, kB a worker and step", ylim=(0, 1.2 * tallest), xlim=(-0.5, 2.55))
    _name_bars(axes, results)


def _name_bars(axes: Axes, results: list[Result]) -> None:
    names = [name.replace("-", "\n", 1) for name, _ in _by_variant(results)]
    axes.set_xticks(range(len(names)), names)
    axes.tick_params(axis="x", length=0)
