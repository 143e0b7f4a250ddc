"""The transformer's tables and picture in the study's report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median

import matplotlib

from p4reduce_lab.study.grid import TASKS, TRANSFORMER, TRANSFORMER_TRIED, TRANSFORMER_VARIANTS
from p4reduce_lab.study.results import Group, Record, select
from p4reduce_lab.study.transformer import RECIPES, Recipe
from p4reduce_lab.tables import Table

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (the backend has to be chosen first)

STEP_TIMES = "study-step-times.json"
LINKS = ("100 Mbit/s", "1 Gbit/s")
PEERS = {
    "dense": "p4reduce dense",
    "adacomp-gather": "p4reduce AdaComp",
    "scalecom": "p4reduce ScaleCom",
    "block-top-k": "p4reduce BlockTopK",
    "wire-16": "p4reduce 16",
    "wire-8-feedback": "p4reduce 8",
    "gloo-dense": "gloo dense",
    "gloo-fp16": "gloo fp16",
    "gloo-powersgd": "gloo PowerSGD",
}
"""The benchmark's name of a variant whose step it measures; adacomp-gather is what AdaComp chooses there."""
PICTURED = (
    "dense",
    "adacomp-gather",
    "adacomp-shared",
    "scalecom",
    "block-top-k",
    "gloo-powersgd",
    "adacomp-beta1-0",
    "adacomp-momentum",
)

Steps = dict[str, dict[str, float]]
"""Seconds of a step by link and peer."""


def step_times(docs: Path) -> Steps:
    """Read the seconds of a step that `p4reduce bench --only transformer` measured; empty where it has not run."""
    path = docs / STEP_TIMES
    if not path.exists():
        return {}
    found: Steps = {link: {} for link in LINKS}
    for series in json.loads(path.read_text(encoding="utf-8")):
        for link in LINKS:
            if series["link"].startswith(link):
                found[link][series["peer"]] = median(series["values"]) / 1000
    return found


def keep_step_times(results: Path, docs: Path) -> None:
    """Copy the series of the benchmark's case from its results.json."""
    series = json.loads(results.read_text(encoding="utf-8"))["cases"]["transformer"]["series"]
    (docs / STEP_TIMES).write_text(json.dumps(series, indent=1) + "\n", encoding="utf-8")


def of(records: Sequence[Record], variant: str, optimizer: str = "adamw") -> Group:
    """Return a variant's runs."""
    return select(records, model=TRANSFORMER, workers=4, optimizer=optimizer, variant=variant)


def bytes_down(group: Group) -> float | None:
    """Return a worker's bytes down in a step: the mean over the training, its dense steps at the beginning included."""
    over_gloo = [record["gloo"][1] for record in group.records if record.get("gloo")]
    if over_gloo:
        return float(mean(over_gloo))
    dense_steps = RECIPES.get(group.records[0]["variant"], Recipe()).make().warmup_steps
    measured = [step for record in group.records for step in record["switch"]]
    later = [step["bytes_down"] for step in measured if step["step"] >= dense_steps]
    first = [step["bytes_down"] for step in measured if step["step"] < dense_steps]
    if not later or (dense_steps and not first):
        return None
    part = dense_steps / TASKS[TRANSFORMER].steps
    return float(part * (mean(first) if first else 0.0) + (1 - part) * mean(later))


def more_than(group: Group, counterpart: Group) -> str:
    """Return by which share a group's loss is larger than its counterpart's, of the seeds of both; "" without one."""
    seeds = {record["seed"] for record in group.records} & {record["seed"] for record in counterpart.records}
    own, other = (Group([record for record in one.records if record["seed"] in seeds]) for one in (group, counterpart))
    return f"{own.mean() / other.mean() - 1:+.1%}" if seeds else ""


def results_table(records: Sequence[Record], times: Steps) -> Table:
    """Write the table of every method: loss, bytes and seconds."""
    dense = of(records, "dense")
    whole = bytes_down(dense) if dense else None
    steps = TASKS[TRANSFORMER].steps
    rows = []
    for variant in TRANSFORMER_VARIANTS:
        group = of(records, variant)
        if not group or not dense:
            continue
        down = bytes_down(group)
        seconds = [times.get(link, {}).get(PEERS.get(variant, "")) for link in LINKS]
        rows.append(
            [
                variant,
                group.text(4),
                "" if variant == "dense" else more_than(group, dense),
                "" if (rate := group.rate("all")) is None else f"{rate:.0f}x",
                "" if down is None else f"{down:,.0f}",
                "" if down is None or whole is None else f"{whole / down:.1f}x",
                *("" if second is None else f"{1000 * second:,.0f}" for second in seconds),
                *("" if second is None else f"{steps * second:,.0f}" for second in seconds),
            ]
        )
    heads = ["variant", "loss, nats", "against dense", "effective rate", "B down", "down, dense / this"]
    heads += [f"ms a step, {link}" for link in LINKS] + [f"s in all, {link}" for link in LINKS]
    return Table(heads, rows)


def progress_table(records: Sequence[Record]) -> Table:
    """Write the table of test losses during the training, of the first seed's runs."""
    points: list[int] = []
    rows = []
    for variant in (*TRANSFORMER_VARIANTS, *TRANSFORMER_TRIED):
        group = of(records, variant)
        for record in group.records[:1]:
            if tests := record.get("test_loss"):
                points = [step + 1 for step, _ in tests]
                rows.append([variant, *(f"{loss:.3f}" for _, loss in tests), f"{record['loss']:.3f}"])
    heads = [f"step {step}" for step in points]
    return Table(["variant", *heads, f"step {TASKS[TRANSFORMER].steps}"], rows)


def tried_table(records: Sequence[Record]) -> Table:
    """Write the table of what was tried for AdaComp, each beside its dense counterpart or, without one, dense."""
    rows = []
    for optimizer, variant in (
        *(("adamw", variant) for variant in ("dense", "adacomp-gather", *TRANSFORMER_TRIED)),
        ("sgd", "dense"),
        ("sgd", "adacomp-gather"),
    ):
        group, beside = of(records, variant, optimizer), counterpart_of(variant)
        if not of(records, beside, optimizer):
            beside = "dense"
        counterpart = of(records, beside, optimizer)
        if not group:
            continue
        down, dense_down = bytes_down(group), bytes_down(dense) if (dense := of(records, "dense")) else None
        against = variant != beside and counterpart
        rows.append(
            [
                optimizer,
                variant,
                group.text(4),
                more_than(group, counterpart) if against else "",
                beside if against else "",
                "" if (rate := group.rate("all")) is None else f"{rate:.0f}x",
                "" if down is None or dense_down is None else f"{dense_down / down:.1f}x",
                "" if (norm := group.residue(1.0)) is None else f"{norm:.1f}",
            ]
        )
    heads = ["optimizer", "variant", "loss, nats", "against", "what", "effective rate"]
    return Table([*heads, "down, dense / this", "residue at the end"], rows)


def counterpart_of(variant: str) -> str:
    """Return the dense variant with the same changes to the optimizer."""
    recipe = RECIPES[variant]
    if recipe.second_moment != "element":
        return "dense" if variant.startswith("dense") else f"dense-{recipe.second_moment}"
    return "dense"


def draw(records: Sequence[Record], docs: Path) -> None:
    """Write study-transformer.png: the training loss over steps, and over bytes down; the first seed's runs."""
    figure, axes = pyplot.subplots(1, 2, figsize=(13, 4.2))
    for variant in PICTURED:
        group = of(records, variant)
        if not group:
            continue
        steps, losses = zip(*group.records[0]["train_loss"], strict=True)
        axes[0].plot(steps, losses, label=variant)
        if (down := bytes_down(group)) is not None:
            axes[1].plot([(step + 1) * down / 1e6 for step in steps], losses, label=variant)
    axes[0].set_xlabel("step")
    axes[1].set_xlabel("MB down a worker, at the training's mean")
    axes[1].set_xscale("log")
    for axis in axes:
        axis.set_ylabel("training loss, nats")
        axis.grid(alpha=0.3)
    if axes[0].lines:
        axes[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(docs / "study-transformer.png", dpi=110)
    pyplot.close(figure)
