"""The study's pictures: bytes against accuracy, residues over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

from p4reduce_lab.study.grid import TASKS, VARIANTS
from p4reduce_lab.study.models import NAMES
from p4reduce_lab.study.results import Record, select

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (the backend has to be chosen first)


def draw(records: Sequence[Record], docs: Path) -> None:
    """Write study-bytes.png and study-residues.png; 4 workers, SGD."""
    _bytes(records, docs / "study-bytes.png")
    _residues(records, docs / "study-residues.png")


def _bytes(records: Sequence[Record], path: Path) -> None:
    """Draw the loss of quality against dense over the ratio of bytes down."""
    figure, axes = pyplot.subplots(1, len(NAMES), figsize=(13, 4.2))
    for axis, model in zip(axes, NAMES, strict=True):
        task = TASKS[model]
        dense = select(records, model=model, workers=4, optimizer="sgd", variant="dense")
        for variant in VARIANTS:
            group = select(records, model=model, workers=4, optimizer="sgd", variant=variant)
            down, whole = group.bytes_a_step("bytes_down", after_warmup=True), dense.least_bytes_down()
            if not group or down is None or whole is None:
                continue
            lost = dense.mean() - group.mean()
            if task.measure == "loss":
                lost = 100 * -lost / dense.mean()
            axis.plot(whole / down, lost, "o")
            axis.annotate(variant, (whole / down, lost), fontsize=7, xytext=(4, 3), textcoords="offset points")
        axis.set_xscale("log")
        axis.set_title(model)
        axis.set_xlabel("bytes down, dense / this")
        axis.set_ylabel("points of accuracy lost" if task.measure == "accuracy" else "% more loss")
        axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _residues(records: Sequence[Record], path: Path) -> None:
    """Draw the norm of the residues over the steps; seed 0, mean of the workers."""
    figure, axes = pyplot.subplots(1, len(NAMES), figsize=(13, 4.2))
    for axis, model in zip(axes, NAMES, strict=True):
        for variant in VARIANTS:
            group = select(records, model=model, workers=4, optimizer="sgd", variant=variant, seed=0)
            if group and variant != "dense":
                steps, norms = zip(*group.records[0]["residue_norm"], strict=True)
                axis.plot(steps, norms, label=variant)
        axis.set_yscale("log")
        axis.set_title(model)
        axis.set_xlabel("step")
        axis.set_ylabel("L2 norm of the residues")
        axis.grid(alpha=0.3)
    if axes[0].lines:
        axes[0].legend(fontsize=6)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
