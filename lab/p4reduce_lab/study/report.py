"""The report of the study: docs/study.json, the pictures of docs/study.md, and the tables beside the results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, Final

from p4reduce_lab.report import Table, picture, write_records
from p4reduce_lab.study.grid import GROUPS, TABLES, TASKS, TRANSFORMER, runs
from p4reduce_lab.study.results import Group, Records, read, select

PAGE: Final = "tables.md"
MODELS: Final = {"mnist-mlp": "MNIST MLP", "mnist-cnn": "MNIST CNN", "shakespeare-lstm": "Shakespeare LSTM"}
OWN: Final = [*GROUPS["forms"], *GROUPS["blocks"]]
PICTURED: Final = (
    *("dense", "adacomp-gather", "adacomp-shared", "scalecom", "block-top-k", "adacomp-beta1-0"),
    *("adacomp-momentum", "momentum-bins-50-clip-mean", "momentum-bins-200"),
)


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
    return lambda group, dense: f"{tests[number][1]:.3f}" if (tests := group.records[0].get("test_loss")) else ""


def _rate_of(kind: str) -> Callable[[Group, Group], str]:
    return lambda group, dense: _show(group.rate(kind), "{:.0f}x")


def _of_ring(group: Group, name: str) -> float:
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
}
"""The functions that show a value of a group, beside its dense counterpart."""


def _cells(columns: str, group: Group, dense: Group) -> list[str]:
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
    """Draw the training loss over steps and over bytes down, in 400 and in 2,000 steps; the first seed's runs."""
    models = (TRANSFORMER, f"{TRANSFORMER}-2000")
    with picture(path, 2 * len(models)) as panels:
        for model, over_steps, over_bytes in zip(models, panels[::2], panels[1::2], strict=True):
            for number, variant in enumerate(PICTURED):
                if group := _group(records, model, variant, optimizer="adamw"):
                    steps, losses = zip(*group.records[0]["train_loss"], strict=True)
                    over_steps.plot(steps, losses, f"C{number}", label=variant)
                    if (down := group.bytes_down_with_warmup()) is not None:
                        over_bytes.plot([(step + 1) * down / 1e6 for step in steps], losses, f"C{number}")
            over_steps.set(xlabel="step", ylabel="training loss, nats")
            over_bytes.set(xlabel="MB down a worker", xscale="log")
            if over_steps.lines:
                over_steps.legend(fontsize=6)
