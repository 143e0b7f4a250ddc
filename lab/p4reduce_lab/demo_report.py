"""What demo and testbed write: a table, report.json and a picture."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import rich.table
from rich.console import Console

from p4reduce_lab.report import machine, mean_and_deviation, picture, write_json
from p4reduce_lab.training import VARIANTS, Result
from p4reduce_runtime import terminal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FLOAT_BYTES, FLOAT_BITS = 4, 32
COLORS = {"gloo-dense": "#7a7f87", "p4reduce-dense": "#2a78b5", "p4reduce-adacomp": "#e2711d"}
_WIDTHS = {"gloo-dense": 4.5}  # two curves coincide: show both
_WINDOW = 20  # steps the loss is averaged over


def write(
    out: Path, results: list[Result], seconds: float, console: Console, more: Mapping[str, object] | None = None
) -> None:
    """Write demo.png and report.json to the folder `out`, and a table to the console.

    `seconds`: what all of it took; `more` goes into report.json too.
    """
    about = {"machine": machine(), "demo_seconds": seconds, "ring_bytes_formula": ring_bytes(results)}
    write_json(out / "report.json", {**about, "runs": results, **(more or {})})
    draw(out / "demo.png", results, "in racks, " if more and "trunks" in more else "")
    console.print(table(results))
    console.print(f"{out / 'demo.png'} and {out / 'report.json'} written, {seconds:.0f} s in all")


def table(results: list[Result]) -> rich.table.Table:
    """Return the table for a terminal."""
    ring = ring_bytes(results)
    headings = (
        "run",
        "#test accuracy",
        "#up, B a worker\nand step",
        "#down, B a worker\nand step",
        f"#formula 2(N-1)/N·4·D\n= {ring:,.0f} B,\nover measured",
        "#training\nseconds",
        "#frames\nrepeated",
    )
    rows = []
    for name, mine in _by_variant(results):
        up, down = values(mine, "up_bytes_per_step"), values(mine, "down_bytes_per_step")
        fewer = f"{2 * ring / (statistics.mean(up) + statistics.mean(down)):.2f}x" if up and down else "not known"
        rows.append(
            [
                name,
                mean_and_deviation([100 * share for share in values(mine, "test_accuracy")], "{:.2f}".format) + " %",
                mean_and_deviation(up, "{:,.0f}".format),
                mean_and_deviation(down, "{:,.0f}".format),
                fewer,
                mean_and_deviation(values(mine, "seconds"), "{:.1f}".format),
                mean_and_deviation(values(mine, "retransmissions"), "{:.0f}".format),
            ]
        )
    caption = (
        "Bytes are measured on the wire, with all headers: p4reduce's by its workers, gloo's by the "
        "kernel (TCP_INFO).\n"
        "The formula is what a ring all-reduce of the dense gradient has to move, without headers."
    )
    for name, mine in _by_variant(results):
        if mine[0].get("rates"):
            caption += f"\n{name}: of each parameter one worker sends, as AdaComp's paper counts it, {_sent(mine)}."
    if "optimizer" in results[0]:
        caption += f"\nAll have SGD with {results[0]['optimizer']} (examples/train.py), along a cosine."
    seeds = _seeds(results)
    more = f", mean ± standard deviation of {seeds} seeds" if seeds > 1 else ""
    return terminal.table(headings, rows, _about(results) + more, caption)


def _sent(results: list[Result]) -> str:
    """Show the bits that one worker sends of a parameter, by kind of layer, and float32's over them."""
    names = {"conv": "convolutions", "linear": "linear layers"}
    rates = {kind: statistics.mean(result["rates"][kind] for result in results) for kind in results[0]["rates"]}
    return ", ".join(
        f"{FLOAT_BITS / rate:.2f} bits ({rate:.0f}x)" + (f" in {names.get(kind, kind)}" if kind != "all" else "")
        for kind, rate in rates.items()
    )


def draw(path: Path, results: list[Result], where: str = "") -> None:
    """Write a PNG with three panels: loss, accuracy with the training time, and bytes."""
    seeds = f", {_seeds(results)} seeds" if _seeds(results) > 1 else ""
    with picture(path, 3, title=f"p4reduce: {where}{_about(results)}{seeds}") as (loss, accuracy, wire):
        for name, mine in _by_variant(results):
            curve = [statistics.mean(losses) for losses in zip(*(result["losses"] for result in mine), strict=True)]
            window = min(_WINDOW, len(curve))
            smooth = [statistics.mean(curve[i - window : i]) for i in range(window, len(curve) + 1)]
            steps = range(window, len(curve) + 1)
            loss.plot(steps, smooth, color=COLORS[name], label=name, linewidth=_WIDTHS.get(name, 1.6))
        loss.set(title="Training loss", xlabel="step", yscale="log")
        loss.legend(loc="upper right", frameon=False)  # to look for the best place takes long
        _draw_accuracy(accuracy, results)
        _draw_bytes(wire, results)


def _draw_accuracy(axes: Axes, results: list[Result]) -> None:
    shares = {name: [100 * value for value in values(mine, "test_accuracy")] for name, mine in _by_variant(results)}
    for name, points in shares.items():
        axes.bar_label(axes.bar(name, statistics.mean(points), color=COLORS[name], width=0.6), fmt="%.2f")
        axes.plot([name] * len(points), points, "k.")
    floor = max(0.0, 5 * (min(min(points) for points in shares.values()) // 5) - 5)
    axes.set(title=f"Test accuracy, % (axis from {floor:.0f})", ylim=(floor, 101.0))
    _name_bars(
        axes, [f"{name}\n{statistics.mean(values(mine, 'seconds')):.1f} s" for name, mine in _by_variant(results)]
    )


def _draw_bytes(axes: Axes, results: list[Result]) -> None:
    ring = ring_bytes(results) / 1000
    names = [name for name, _ in _by_variant(results)]
    for at, (name, mine) in enumerate(_by_variant(results)):
        for offset, direction, alpha in ((-0.2, "up", 1.0), (0.2, "down", 0.55)):
            if found := values(mine, f"{direction}_bytes_per_step"):
                height = statistics.mean(found) / 1000
                axes.bar(at + offset, height, width=0.36, color=COLORS[name], alpha=alpha)
                axes.text(at + offset, height, f"{direction}\n{height:.1f}", ha="center", va="bottom", fontsize=9)
    axes.axhline(ring, color="black", linewidth=1, linestyle="--", label=f"a ring's 2(N-1)/N·4·D: {ring:.1f}")
    axes.margins(y=0.25)
    axes.legend(loc="upper right", frameon=False, fontsize=9)
    axes.set(title="On the wire, kB a worker and step")
    _name_bars(axes, names)


def _name_bars(axes: Axes, names: list[str]) -> None:
    axes.set_xticks(range(len(names)), [name.replace("-", "\n", 1) for name in names])


def ring_bytes(results: list[Result]) -> float:
    """Return the bytes a worker and step of a ring all-reduce of the dense gradient: 2(N-1)/N · 4 · D, no headers."""
    workers, parameters = results[0]["world_size"], results[0]["parameters"]
    return float(2 * (workers - 1) / workers * FLOAT_BYTES * parameters)


def values(results: Iterable[Result], key: str) -> list[float]:
    """Return one number of each result; nothing when one of them has none."""
    found = [result[key] for result in results]
    return [] if None in found else [float(value) for value in found]


def _by_variant(results: list[Result]) -> list[tuple[str, list[Result]]]:
    found = {name: [one for one in results if one["name"] == name] for name in VARIANTS}
    return [(name, mine) for name, mine in found.items() if mine]


def _seeds(results: list[Result]) -> int:
    return len({result["seed"] for result in results})


def _about(results: list[Result]) -> str:
    first = results[0]
    return f"{first['world_size']} workers, {first['parameters']} parameters, {first['steps']} steps"
