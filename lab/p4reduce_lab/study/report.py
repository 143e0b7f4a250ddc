"""docs/study.json, docs/study-tables.md and the pictures of docs/study.md, from the results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from p4reduce_lab.study import transformer_report
from p4reduce_lab.study.grid import (
    BASELINES,
    BATCHES,
    BINS,
    LONGER_LSTM,
    LSTM_WITH_ADAM,
    MAIN_VARIANTS,
    MANY_WORKERS,
    OPTIMIZERS,
    PLAYS_WORDS,
    RING_PASSES,
    SINGLE_FORM_VARIANTS,
    TASKS,
    TRANSFORMER,
    VARIANTS,
    runs,
)
from p4reduce_lab.study.plot import draw
from p4reduce_lab.study.results import Group, Record, read, select
from p4reduce_lab.study.ring import RINGS
from p4reduce_lab.study.rounded import ROUNDED
from p4reduce_lab.tables import Table, write_records

MODELS = {"mnist-mlp": "MNIST MLP", "mnist-cnn": "MNIST CNN", "shakespeare-lstm": "Shakespeare LSTM"}


TITLES = {
    **MODELS,
    "workers": "Two, four and eight workers",
    "adam": "Adam",
    "novograd": "NovoGrad",
    "batches": "Larger batches",
    "many-workers": "Sixteen and thirty-two workers",
    "rounded": "Whole gradients in 16 and 8 bits",
    "baselines": "1-bit SGD and top-k",
    "ring": "Ring of hosts",
    "sparsity": "Sparse embedding gradients",
    "rates": "AdaComp: effective rate by kind of layer",
    "bins": "AdaComp: bins and steps",
    "transformer": "Transformer with AdamW",
    "transformer-progress": "Transformer: loss against steps",
    "transformer-tried": "Transformer: what was tried for AdaComp",
}
"""The headings of the page of tables, in order."""
PAGE = "study-tables.md"


def write_report(results: Path, docs: Path) -> None:
    """Write study.json, the page of tables and the pictures into DOCS; nothing where there are no results."""
    records = read(results, docs / "study.json")
    if not records:
        return
    write_records(docs / "study.json", records)
    draw(records, docs)
    if select(records, model=TRANSFORMER):
        transformer_report.draw(records, docs)
    (docs / PAGE).write_text(page(records, transformer_report.step_times(docs)), encoding="utf-8")


def page(records: Sequence[Record], step_times: transformer_report.Steps) -> str:
    """Return the page of tables of the records; `step_times`: of the transformer, from the benchmark."""
    made = f"{len(records)} of {len(list(runs()))} trainings of the grid (`lab/p4reduce_lab/study/grid.py`)."
    parts = [
        "<!-- Generated from study.json by `python -m p4reduce_lab.study --report-only`. -->\n",
        f"# Tables of the study\n\n[The study](study.md) explains settings and columns. {made}\n",
    ]
    tables = _tables(records, step_times)
    parts += [f"## {title}\n\n{tables[name].markdown()}\n" for name, title in TITLES.items()]
    return "\n".join(parts)


def _tables(records: Sequence[Record], step_times: transformer_report.Steps) -> dict[str, Table]:
    return {
        **{model: _model(records, model) for model in MODELS},
        "workers": _workers(records),
        "adam": _adam(records),
        "ring": _ring(records),
        "sparsity": _sparsity(records),
        "novograd": _novograd(records),
        "batches": _batches(records),
        "many-workers": _many_workers(records),
        "rounded": _rounded(records),
        "baselines": _baselines(records),
        "bins": _bins(records),
        "rates": _rates(records),
        "transformer": transformer_report.results_table(records, step_times),
        "transformer-progress": transformer_report.progress_table(records),
        "transformer-tried": transformer_report.tried_table(records),
    }


def _model(records: Sequence[Record], model: str) -> Table:
    """Write the table of every variant with 4 workers and SGD."""
    at = {"model": model, "workers": 4, "optimizer": "sgd"}
    dense = select(records, **at, variant="dense")
    digits = 2 if TASKS[model].measure == "accuracy" else 4
    rows = []
    for variant in VARIANTS:
        group = select(records, **at, variant=variant)
        if not group:
            continue
        steady = dense.least_bytes_down() if variant == "dense" else group.bytes_a_step("bytes_down", after_warmup=True)
        rows.append(
            [
                variant,
                group.text(digits),
                "" if variant == "dense" else _against(group, dense, model),
                _number(group.rate("all"), "{:.0f}x"),
                _number(group.bytes_a_step("bytes_up", after_warmup=True), "{:,.0f}"),
                _number(steady, "{:,.0f}"),
                _ratio(dense.least_bytes_down(), steady),
                _number(group.off_by(), "{:.0%}"),
                " / ".join(_number(group.residue(part), "{:.1f}") for part in (0.1, 0.5, 1)),
            ]
        )
    measure = "accuracy %" if TASKS[model].measure == "accuracy" else "loss, nats"
    heads = ["variant", measure, "against dense", "effective rate", "B up", "B down", "down, dense / this"]
    return Table([*heads, "predicted, off by", "residue"], rows)


def _workers(records: Sequence[Record]) -> Table:
    rows = []
    for model, title in MODELS.items():
        digits = 2 if TASKS[model].measure == "accuracy" else 4
        for workers in (2, 4, 8):
            at = {"model": model, "workers": workers, "optimizer": "sgd"}
            dense = select(records, **at, variant="dense")
            groups = {
                variant: select(records, **at, variant=variant) for variant in (*MAIN_VARIANTS, *SINGLE_FORM_VARIANTS)
            }
            if not dense:
                continue
            down = {variant: group.bytes_a_step("bytes_down", after_warmup=True) for variant, group in groups.items()}
            rows.append(
                [
                    title,
                    str(workers),
                    *(groups[variant].text(digits) if groups[variant] else "" for variant in MAIN_VARIANTS),
                    _number(dense.least_bytes_down(), "{:,.0f}"),
                    *(
                        _ratio(dense.least_bytes_down(), down[variant])
                        for variant in (*SINGLE_FORM_VARIANTS, *MAIN_VARIANTS[1:])
                    ),
                ]
            )
    down_heads = [f"{variant}, down" for variant in (*SINGLE_FORM_VARIANTS, *MAIN_VARIANTS[1:])]
    return Table(["model", "workers", *MAIN_VARIANTS, "dense, B down", *down_heads], rows)


def _adam(records: Sequence[Record]) -> Table:
    rows = []
    with_adam = {**MODELS, LSTM_WITH_ADAM: f"Shakespeare LSTM, {TASKS[LSTM_WITH_ADAM].steps:,} steps"}
    for model, title in with_adam.items():
        at = {"model": model, "workers": 4, "optimizer": "adam"}
        dense = select(records, **at, variant="dense")
        digits = 2 if TASKS[model].measure == "accuracy" else 4
        for variant in MAIN_VARIANTS:
            group = select(records, **at, variant=variant)
            if group and dense:
                steady = group.bytes_a_step("bytes_down", after_warmup=True)
                rows.append(
                    [
                        title,
                        variant,
                        group.text(digits),
                        "" if variant == "dense" else _against(group, dense, model),
                        _number(group.rate("all"), "{:.0f}x"),
                        _ratio(dense.least_bytes_down(), steady),
                    ]
                )
    return Table(["model", "variant", "result", "against dense", "effective rate", "down, dense / this"], rows)


def _novograd(records: Sequence[Record]) -> Table:
    """Write the table of NovoGrad beside SGD and Adam at a large batch, and alone at the usual one."""
    rows = []
    for model, optimizers in (("mnist-mlp-4096", OPTIMIZERS), ("mnist-mlp", ("novograd",))):
        for optimizer in optimizers:
            at = {"model": model, "workers": 4, "optimizer": optimizer}
            dense, adacomp = (select(records, **at, variant=variant) for variant in ("dense", "adacomp-auto"))
            if dense:
                batch, state = TASKS[model].batch, dense.records[0].get("state_per_parameter")
                results = dense.text(2), adacomp.text(2), _against(adacomp, dense, model)
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
    return Table(heads, rows)


def _batches(records: Sequence[Record]) -> Table:
    """Write the table of the MLP at several batches: what each variant costs, and how alike the workers are."""
    rows = []
    for model in ("mnist-mlp", *BATCHES):
        at = {"model": model, "workers": 4, "optimizer": "sgd"}
        dense, adacomp, scalecom = (select(records, **at, variant=variant) for variant in MAIN_VARIANTS)
        if dense:
            task = TASKS[model]
            rows.append(
                [
                    f"{task.batch:,}",
                    f"{task.steps:,}",
                    dense.text(2),
                    *(text for group in (adacomp, scalecom) for text in _result(group, dense, model)),
                    _number(dense.similarity(with_residues=False), "{:.2f}"),
                    _number(scalecom.similarity(with_residues=True), "{:.2f}"),
                ]
            )
    variants = [text for variant in MAIN_VARIANTS[1:] for text in (f"{variant} %", "against dense", "effective rate")]
    return Table(["batch", "steps", "dense %", *variants, "cosine, gradients", "cosine, with residues"], rows)


def _many_workers(records: Sequence[Record]) -> Table:
    """Write the table of one model and batch, shared out among ever more workers."""
    rows = []
    for workers in (4, 16, 32):
        at = {"model": MANY_WORKERS, "workers": workers, "optimizer": "sgd"}
        dense, *others = (select(records, **at, variant=variant) for variant in MAIN_VARIANTS)
        if dense:
            whole, scalecom = dense.least_bytes_down(), others[-1]
            rows.append(
                [
                    str(workers),
                    dense.text(2),
                    *(text for group in others for text in _result(group, dense, MANY_WORKERS)),
                    *(_ratio(whole, group.bytes_a_step("bytes_down", after_warmup=True)) for group in others),
                    _number(dense.similarity(with_residues=False), "{:.2f}"),
                    _number(scalecom.similarity(with_residues=True), "{:.2f}"),
                ]
            )
    variants = [text for variant in MAIN_VARIANTS[1:] for text in (f"{variant} %", "against dense", "effective rate")]
    down = [f"{variant}, down" for variant in MAIN_VARIANTS[1:]]
    return Table(["workers", "dense %", *variants, *down, "cosine, gradients", "cosine, with residues"], rows)


def _rounded(records: Sequence[Record]) -> Table:
    """Write the table of whole gradients in fewer bits, with and without error feedback."""
    rows = []
    for model, title in MODELS.items():
        at = {"model": model, "workers": 4, "optimizer": "sgd"}
        dense = select(records, **at, variant="dense")
        digits = 2 if TASKS[model].measure == "accuracy" else 4
        groups = {variant: select(records, **at, variant=variant) for variant in ("dense", *ROUNDED)}
        if not any(groups[variant] for variant in ROUNDED):
            continue
        for variant, group in groups.items():
            if group and dense:
                down = group.least_bytes_down()
                rows.append(
                    [
                        title,
                        variant,
                        group.text(digits),
                        "" if variant == "dense" else _against(group, dense, model),
                        _number(down, "{:,.0f}"),
                        _ratio(dense.least_bytes_down(), down),
                        " / ".join(_number(group.residue(part), "{:.4f}") for part in (0.1, 0.5, 1))
                        if variant.endswith("feedback")
                        else "",
                    ]
                )
    heads = ["model", "variant", "result", "against dense", "B down", "down, dense / this", "residue"]
    return Table(heads, rows)


def _baselines(records: Sequence[Record]) -> Table:
    """Write the table of the older variants beside AdaComp, on the model with convolutions."""
    rows = _beside_dense(records, "mnist-cnn", ("dense", "adacomp-auto", *BASELINES))
    return Table(["variant", "accuracy %", "against dense", "effective rate"], rows)


def _bins(records: Sequence[Record]) -> Table:
    """Write the table of AdaComp on the LSTM with bins of other lengths, and with more steps."""
    rows = [
        [f"{TASKS[model].steps:,}", *row]
        for model in ("shakespeare-lstm", LONGER_LSTM)
        for row in _beside_dense(records, model, ("dense", "adacomp-gather", *BINS))
    ]
    return Table(["steps", "variant", "loss, nats", "against dense", "effective rate"], rows)


def _beside_dense(records: Sequence[Record], model: str, variants: Sequence[str]) -> list[list[str]]:
    at = {"model": model, "workers": 4, "optimizer": "sgd"}
    groups = {variant: select(records, **at, variant=variant) for variant in variants}
    dense = groups["dense"]
    digits = 2 if TASKS[model].measure == "accuracy" else 4
    return [
        [variant, group.text(digits), *(["", ""] if variant == "dense" else _result(group, dense, model)[1:])]
        for variant, group in groups.items()
        if group and dense
    ]


def _result(group: Group, dense: Group, model: str) -> list[str]:
    """Show a group's result, how it compares with the dense one, and its effective rate; blank where it was not run."""
    if not group:
        return ["", "", ""]
    digits = 2 if TASKS[model].measure == "accuracy" else 4
    return [group.text(digits), _against(group, dense, model), _number(group.rate("all"), "{:.0f}x")]


def _rates(records: Sequence[Record]) -> Table:
    """Write the table of AdaComp's effective compression rate by kind of layer."""
    rows = []
    for model, title in MODELS.items():
        group = select(records, model=model, workers=4, optimizer="sgd", variant="adacomp-gather")
        for kind in ("conv", "linear", "recurrent", "embedding"):
            rate = group.rate(kind) if group else None
            if rate is not None:
                rows.append([title, kind, "50" if kind == "conv" else "500", f"{rate:.0f}x"])
    return Table(["model", "layers", "L_T", "effective rate"], rows)


def _ring(records: Sequence[Record]) -> Table:
    """Write the table of the ring's variants, each beside the dense ring of one pass."""
    dense = select(records, model=RING_PASSES[0], variant="ring-dense")
    rows = []
    for passes, model in enumerate(RING_PASSES, 1):
        for variant in RINGS:
            group = select(records, model=model, variant=variant)
            if group and dense:
                sent, whole, zeros = (
                    mean(record["ring"][what] for record in group.records)
                    for what in ("bytes_a_step", "dense_bytes_a_step", "zeros")
                )
                same = group.records[0]["id"] == dense.records[0]["id"]
                against = "" if same else _against(group, dense, model)
                rows.append(
                    [
                        variant,
                        str(passes),
                        group.text(2),
                        against,
                        f"{sent:,.0f}",
                        f"{whole / sent:.2f}x",
                        f"{zeros:.2%}",
                    ]
                )
    heads = ["variant", "passes", "accuracy %", "against dense, 1 pass", "B a worker and step", "float32 / this"]
    return Table([*heads, "zeros in the mean"], rows)


def _sparsity(records: Sequence[Record]) -> Table:
    """Write the table of what the switch saves by zeros alone: of the embedding, of the rest, and of both."""
    rows = []
    for model in PLAYS_WORDS:
        group = select(records, model=model, variant="dense")
        for title, parts in (("embedding", ("embedding",)), ("the rest", ("rest",)), ("all", ("embedding", "rest"))):
            if group:
                dense, found = _part_bytes(group, parts, "dense"), _part_bytes(group, parts, "steps")
                touched = mean(record["rows_touched"] for record in group.records)
                rows.append(
                    [
                        str(TASKS[model].batch // 4),
                        f"{touched:,.0f} of {group.records[0]['vocabulary']:,}",
                        title,
                        *(f"{dense[direction]:,.0f}" for direction in ("up", "down")),
                        *(f"{found[direction]:,.0f}" for direction in ("up", "down")),
                        *(_ratio(dense[direction], found[direction]) for direction in ("up", "down")),
                    ]
                )
    heads = [
        "pieces a worker",
        "rows a worker touches",
        "gradients of",
        "dense, B up",
        "dense, B down",
        "B up",
        "B down",
    ]
    return Table([*heads, "up, dense / this", "down, dense / this"], rows)


def _part_bytes(group: Group, parts: Sequence[str], what: str) -> dict[str, float]:
    """Return a worker's bytes up and down, of these parts together; the mean over steps and seeds."""

    def of_record(record: Record, direction: str) -> float:
        return float(sum(mean(step[direction] for step in record["bytes"][part][what]) for part in parts))

    return {direction: mean(of_record(record, direction) for record in group.records) for direction in ("up", "down")}


def _against(group: Group, dense: Group, model: str) -> str:
    """Show points of accuracy, or per cent of loss; better is positive in the first, negative in the second."""
    ours, theirs = group.mean(), dense.mean()
    if math.isnan(ours) or math.isnan(theirs):  # diverged, or not run
        return ""
    if TASKS[model].measure == "accuracy":
        return f"{ours - theirs:+.2f} points"
    return f"{ours / theirs - 1:+.2%}"


def _ratio(whole: float | None, part: float | None) -> str:
    return "" if whole is None or part is None else f"{whole / part:.1f}x"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
