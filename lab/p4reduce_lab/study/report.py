"""docs/study.json, the tables of docs/study.md and its pictures, from the results."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from p4reduce_lab.study.grid import MAIN_WAYS, OPTIMIZERS, SINGLE_FORM_WAYS, TASKS, WAYS, runs
from p4reduce_lab.study.plot import draw
from p4reduce_lab.study.results import Group, Record, keep, read, select

MODELS = {"mnist-mlp": "MNIST MLP", "mnist-cnn": "MNIST CNN", "shakespeare-lstm": "Shakespeare LSTM"}


def write_report(results: Path, docs: Path) -> None:
    """Write what the results say into DOCS; the prose of study.md between its tables stays as it is."""
    records = read(results, docs / "study.json")
    if not records:
        return
    keep(records, docs / "study.json")
    draw(records, docs)
    page = docs / "study.md"
    text = page.read_text(encoding="utf-8")
    for name, table in _tables(records).items():
        place = re.compile(rf"(<!-- table: {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
        text, found = place.subn(rf"\g<1>\n{table}\n\n\g<2>", text)
        if not found:
            raise ValueError(f"docs/study.md has no place for a table: <!-- table: {name} --> ... <!-- end -->")
    page.write_text(text, encoding="utf-8")


def _tables(records: Sequence[Record]) -> dict[str, str]:
    tables = {model: _model(records, model) for model in MODELS}
    grid = "`lab/p4reduce_lab/study/grid.py`"
    made = f"{len(records)} of the grid's {len(list(runs()))} trainings ({grid}) are in the tables below."
    return {
        **tables,
        "runs": made,
        "workers": _workers(records),
        "adam": _adam(records),
        "novograd": _novograd(records),
        "rates": _rates(records),
    }


def _model(records: Sequence[Record], model: str) -> str:
    """Write the table of every way with 4 workers and SGD."""
    at = {"model": model, "workers": 4, "optimizer": "sgd"}
    dense = select(records, **at, way="dense")
    digits = 2 if TASKS[model].measure == "accuracy" else 4
    rows = []
    for way in WAYS:
        group = select(records, **at, way=way)
        if not group:
            continue
        steady = dense.least_bytes_down() if way == "dense" else group.bytes_a_step("bytes_down", after_warmup=True)
        rows.append(
            [
                way,
                group.measure().text(digits),
                "" if way == "dense" else _against(group, dense, model),
                _number(group.rate("all"), "{:.0f}x"),
                _number(group.bytes_a_step("bytes_up", after_warmup=True), "{:,.0f}"),
                _number(steady, "{:,.0f}"),
                _ratio(dense.least_bytes_down(), steady),
                _number(group.off_by(), "{:.0%}"),
                " / ".join(_number(group.residue(part), "{:.1f}") for part in (0.1, 0.5, 1)),
            ]
        )
    measure = "accuracy %" if TASKS[model].measure == "accuracy" else "loss, nats"
    heads = ["way", measure, "against dense", "effective rate", "B up", "B down", "down, dense / this"]
    return _table([*heads, "predicted, off by", "residue"], rows)


def _workers(records: Sequence[Record]) -> str:
    rows = []
    for model, title in MODELS.items():
        digits = 2 if TASKS[model].measure == "accuracy" else 4
        for workers in (2, 4, 8):
            at = {"model": model, "workers": workers, "optimizer": "sgd"}
            dense = select(records, **at, way="dense")
            groups = {way: select(records, **at, way=way) for way in (*MAIN_WAYS, *SINGLE_FORM_WAYS)}
            if not dense:
                continue
            down = {way: group.bytes_a_step("bytes_down", after_warmup=True) for way, group in groups.items()}
            rows.append(
                [
                    title,
                    str(workers),
                    *(groups[way].measure().text(digits) if groups[way] else "" for way in MAIN_WAYS),
                    _number(dense.least_bytes_down(), "{:,.0f}"),
                    *(_ratio(dense.least_bytes_down(), down[way]) for way in (*SINGLE_FORM_WAYS, *MAIN_WAYS[1:])),
                ]
            )
    down_heads = [f"{way}, down" for way in (*SINGLE_FORM_WAYS, *MAIN_WAYS[1:])]
    return _table(["model", "workers", *MAIN_WAYS, "dense, B down", *down_heads], rows)


def _adam(records: Sequence[Record]) -> str:
    rows = []
    for model, title in MODELS.items():
        at = {"model": model, "workers": 4, "optimizer": "adam"}
        dense = select(records, **at, way="dense")
        digits = 2 if TASKS[model].measure == "accuracy" else 4
        for way in MAIN_WAYS:
            group = select(records, **at, way=way)
            if group and dense:
                steady = group.bytes_a_step("bytes_down", after_warmup=True)
                rows.append(
                    [
                        title,
                        way,
                        group.measure().text(digits),
                        "" if way == "dense" else _against(group, dense, model),
                        _number(group.rate("all"), "{:.0f}x"),
                        _ratio(dense.least_bytes_down(), steady),
                    ]
                )
    return _table(["model", "way", "result", "against dense", "effective rate", "down, dense / this"], rows)


def _novograd(records: Sequence[Record]) -> str:
    """Write the table of NovoGrad beside SGD and Adam at a large batch, and alone at the usual one."""
    rows = []
    for model, optimizers in (("mnist-mlp-4096", OPTIMIZERS), ("mnist-mlp", ("novograd",))):
        for optimizer in optimizers:
            at = {"model": model, "workers": 4, "optimizer": optimizer}
            dense, adacomp = (select(records, **at, way=way) for way in ("dense", "adacomp-auto"))
            if dense:
                batch, state = TASKS[model].batch, dense.records[0].get("state_per_parameter")
                results = dense.measure().text(2), adacomp.measure().text(2), _against(adacomp, dense, model)
                rows.append(
                    [
                        f"{batch:,}",
                        optimizer,
                        _number(state, "{:.2f}"),
                        *results,
                        _number(adacomp.rate("all"), "{:.0f}x"),
                    ]
                )
    heads = ["batch", "optimizer", "state a parameter", "dense %", "adacomp-auto %", "against dense", "effective rate"]
    return _table(heads, rows)


def _rates(records: Sequence[Record]) -> str:
    """Write the table of AdaComp's effective compression rate by kind of layer."""
    rows = []
    for model, title in MODELS.items():
        group = select(records, model=model, workers=4, optimizer="sgd", way="adacomp-gather")
        for kind in ("conv", "linear", "recurrent", "embedding"):
            rate = group.rate(kind) if group else None
            if rate is not None:
                rows.append([title, kind, "50" if kind == "conv" else "500", f"{rate:.0f}x"])
    return _table(["model", "layers", "L_T", "effective rate"], rows)


def _against(group: Group, dense: Group, model: str) -> str:
    """Show points of accuracy, or per cent of loss; better is positive in the first, negative in the second."""
    ours, theirs = group.measure().mean, dense.measure().mean
    if math.isnan(ours) or math.isnan(theirs):  # diverged, or not run
        return ""
    if TASKS[model].measure == "accuracy":
        return f"{ours - theirs:+.2f} points"
    return f"{ours / theirs - 1:+.2%}"


def _ratio(whole: float | None, part: float | None) -> str:
    return "" if whole is None or part is None else f"{whole / part:.1f}x"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
