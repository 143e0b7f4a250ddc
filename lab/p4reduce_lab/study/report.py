"""The results of all runs: read from their files, kept as docs/study.json, and shown in pictures and tables.

The pictures are those of docs/study.md; the tables go beside the folder of results.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, Final

from p4reduce_lab.report import Table, mean_and_range, picture, write_records
from p4reduce_lab.study.grid import (
    GROUPS,
    SEEDS,
    TABLES,
    TASKS,
    TRANSFORMER,
    VARIANTS,
    WARMUP_STEPS,
    Task,
    Variant,
    runs,
)

PAGE: Final = "tables.md"
MODELS: Final = {"mnist-mlp": "MNIST MLP", "mnist-cnn": "MNIST CNN", "shakespeare-lstm": "Shakespeare LSTM"}
OWN: Final = [*GROUPS["forms"], *GROUPS["blocks"]]
PICTURED: Final = (
    *("dense", "adacomp-gather", "adacomp-shared", "scalecom", "block-top-k", "gloo-powersgd", "adacomp-beta1-0"),
    "adacomp-momentum",
)
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
        """Return the mean over the training, its dense steps at the beginning included; of torch's hooks, gloo's."""
        if over_gloo := [record["gloo"][1] for record in self.records if record.get("gloo")]:
            return float(mean(over_gloo))
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

    def similarity(self, *, with_residues: bool) -> float | None:
        """Return the ranks' leading cosine after the warm-up, the mean over the steps measured and over the seeds."""
        points = (point for record in self.records for point in record.get("similarity", []))
        return _mean(totals if with_residues else alone for step, alone, totals in points if step >= WARMUP_STEPS)


def select(records: Iterable[Record], **wanted: object) -> Group:
    """Return the records with these fields, like model="mnist-mlp", workers=4, optimizer="sgd", variant="dense"."""
    return Group([record for record in records if all(record[key] == value for key, value in wanted.items())])


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return float(mean(known)) if known else None


def write_report(results: Path, docs: Path) -> None:
    """Write study.json and the pictures into DOCS, the page of tables beside RESULTS; nothing without results."""
    records = read(results, docs / "study.json")
    if not records:
        return
    write_records(docs / "study.json", records)
    _draw_bytes(records, docs / "study-bytes.png")
    _draw_residues(records, docs / "study-residues.png")
    if select(records, model=TRANSFORMER):
        _draw_transformer(records, docs / "study-transformer.png")
    (results.parent / PAGE).write_text(page(records), encoding="utf-8")


def page(records: Records) -> str:
    """Return the page of tables of the records."""
    made = f"{len(records)} of {len(list(runs()))} trainings of the grid (`lab/p4reduce_lab/study/grid.toml`)."
    parts = [
        "<!-- Generated from study.json by `python -m p4reduce_lab.study --report-only`. -->\n",
        f"# Tables of the study\n\n`docs/study.md` explains settings and columns. {made}\n",
    ]
    parts += [f"## {title}\n\n{table.markdown()}\n" for title, table in tables(records).items()]
    return "\n".join(parts)


def tables(records: Records) -> dict[str, Table]:
    """Return all tables by title, in order."""
    return {of["title"]: _table(records, **of) for of in TABLES}


def _show(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def _ratio(whole: float | None, part: float | None) -> str:
    return "" if whole is None or part is None else f"{whole / part:.1f}x"


def _against(group: Group, dense: Group) -> str:
    """Show points of accuracy, or per cent of loss; better is positive in the first, negative in the second."""
    ours, theirs = group.mean(), dense.mean()
    if group.records == dense.records or math.isnan(ours) or math.isnan(theirs):  # itself; diverged, or not run
        return ""
    return f"{ours - theirs:+.2f} points" if group.task.measure == "accuracy" else f"{ours / theirs - 1:+.2%}"


def _residues(group: Group, form: str) -> str:
    return " / ".join(_show(group.residue(part), form) for part in (0.1, 0.5, 1))


def _test_loss(number: int) -> Callable[[Group, Group], str]:
    """Return what shows a test loss during the training, of the first seed's run."""
    return lambda group, dense: f"{tests[number][1]:.3f}" if (tests := group.records[0].get("test_loss")) else ""


def _rate_of(kind: str) -> Callable[[Group, Group], str]:
    return lambda group, dense: _show(group.rate(kind), "{:.0f}x")


def _of_ring(group: Group, name: str) -> float:
    """Return the mean over the seeds of what a ring has counted."""
    return float(mean(record["ring"][name] for record in group.records))


_COLUMNS: Final[dict[str, Callable[[Group, Group], str]]] = {
    "result": lambda group, dense: group.text(),
    "against": _against,
    "against-seeds": lambda group, dense: "" if group.records == dense.records else more_than(group, dense),
    "rate": lambda group, dense: _show(group.rate(), "{:.0f}x"),
    "up": lambda group, dense: _show(group.bytes_a_step("bytes_up"), "{:,.0f}"),
    "down": lambda group, dense: _show(group.bytes_down(), "{:,.0f}"),
    "ratio": lambda group, dense: _ratio(dense.bytes_down(), group.bytes_down()),
    "down-all": lambda group, dense: _show(group.bytes_down_with_warmup(), "{:,.0f}"),
    "ratio-all": lambda group, dense: _ratio(dense.bytes_down_with_warmup(), group.bytes_down_with_warmup()),
    "residues": lambda group, dense: _residues(group, "{:.1f}"),
    "residue-end": lambda group, dense: _show(group.residue(1.0), "{:.1f}"),
    "beside": lambda group, dense: "" if group.records == dense.records else str(dense.records[0]["variant"]),
    "first-loss": lambda group, dense: _show(group.records[0]["loss"], "{:.3f}"),
    **{f"test-{number}": _test_loss(number) for number in range(4)},
    **{f"rate-{kind}": _rate_of(kind) for kind in ("conv", "linear", "recurrent", "embedding")},
    "ring-bytes": lambda group, dense: f"{_of_ring(group, 'bytes_a_step'):,.0f}",
    "ring-ratio": lambda group, dense: (
        f"{_of_ring(group, 'dense_bytes_a_step') / _of_ring(group, 'bytes_a_step'):.2f}x"
    ),
    "ring-zeros": lambda group, dense: f"{_of_ring(group, 'zeros'):.2%}",
    "feedback": lambda group, dense: _residues(group, "{:.4f}") if group.variant.compressor == "quantize" else "",
    "state": lambda group, dense: _show(group.records[0].get("state_per_parameter"), "{:.2f}"),
    "alike": lambda group, dense: _show(group.similarity(with_residues=False), "{:.2f}"),
    "alike-totals": lambda group, dense: _show(group.similarity(with_residues=True), "{:.2f}"),
}
"""What is shown of a group, and its dense counterpart."""


def _cells(columns: str, group: Group, dense: Group) -> list[str]:
    """Show a group; blank where it was not run."""
    return [_COLUMNS[name](group, dense) if group else "" for name in columns.split()]


def _group(records: Records, model: str, variant: str, workers: int = 4, optimizer: str = "sgd") -> Group:
    return select(records, model=model, workers=workers, optimizer=optimizer, variant=variant)


def _table(
    records: Records,
    *,
    title: str,
    heads: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    cells: Sequence[tuple[str, str]] = (),
    variants: Sequence[str] = (),
    columns: str = "",
) -> Table:
    """Return a table of grid.toml, of what was run."""
    shown: list[list[str]] = []
    for row in rows:
        at = {name: value for name, value in row.items() if name not in ("lead", "beside", "variants")}
        lead, own_variants = row.get("lead", []), row.get("variants", variants)
        dense = _group(records, **{"variant": "dense", **at, **row.get("beside", {})})
        if dense and cells:
            groups = ((_group(records, variant=variant, **at), own) for variant, own in cells)
            shown.append([*lead, *(cell for group, own in groups for cell in _cells(own, group, dense))])
        elif dense:
            names = [variant for name in own_variants for variant in GROUPS.get(name, [name])]
            ran = [(name, group) for name in names if (group := _group(records, variant=name, **at))]
            if any(group.records != dense.records for _, group in ran):
                shown += [[*lead, name, *_cells(columns, group, dense)] for name, group in ran]
    return Table(heads, shown)


def more_than(group: Group, counterpart: Group) -> str:
    """Return by which share a group's loss is larger than its counterpart's, of the seeds of both; "" without one."""
    seeds = {record["seed"] for record in group.records} & {record["seed"] for record in counterpart.records}
    own, other = (Group([record for record in one.records if record["seed"] in seeds]) for one in (group, counterpart))
    return f"{own.mean() / other.mean() - 1:+.1%}" if seeds else ""


def _draw_bytes(records: Records, path: Path) -> None:
    """Draw the loss of quality against dense over the ratio of bytes down; 4 workers, SGD."""
    with picture(path, len(MODELS)) as panels:
        for axes, model in zip(panels, MODELS, strict=True):
            accuracy = TASKS[model].measure == "accuracy"
            dense = _group(records, model, "dense")
            for variant in OWN:
                group = _group(records, model, variant)
                down, whole = group.bytes_a_step("bytes_down"), dense.least_bytes_down()
                if down is not None and whole is not None:
                    lost = dense.mean() - group.mean()
                    at = whole / down, lost if accuracy else 100 * -lost / dense.mean()
                    axes.plot(*at, "o")
                    axes.annotate(variant, at, fontsize=7, xytext=(4, 3), textcoords="offset points")
            axes.set(xscale="log", title=model, xlabel="bytes down, dense / this")
            axes.set_ylabel("points of accuracy lost" if accuracy else "% more loss")


def _draw_residues(records: Records, path: Path) -> None:
    """Draw the norm of the residues over the steps; 4 workers, SGD, seed 0, mean of the workers."""
    with picture(path, len(MODELS)) as panels:
        for axes, model in zip(panels, MODELS, strict=True):
            for variant in OWN[1:]:
                for record in select(_group(records, model, variant).records, seed=0).records:
                    axes.plot(*zip(*record["residue_norm"], strict=True), label=variant)
            axes.set(yscale="log", title=model, xlabel="step", ylabel="L2 norm of the residues")
        if panels[0].lines:
            panels[0].legend(fontsize=6)


def _draw_transformer(records: Records, path: Path) -> None:
    """Draw the training loss over steps, and over bytes down; the first seed's runs."""
    with picture(path, 2) as panels:
        for variant in PICTURED:
            if group := _group(records, TRANSFORMER, variant, optimizer="adamw"):
                steps, losses = zip(*group.records[0]["train_loss"], strict=True)
                panels[0].plot(steps, losses, label=variant)
                if (down := group.bytes_down_with_warmup()) is not None:
                    panels[1].plot([(step + 1) * down / 1e6 for step in steps], losses, label=variant)
        panels[0].set(xlabel="step", ylabel="training loss, nats")
        panels[1].set(xlabel="MB down a worker, at the training's mean", ylabel="training loss, nats", xscale="log")
        if panels[0].lines:
            panels[0].legend(fontsize=7)
