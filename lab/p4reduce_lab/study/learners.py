"""`python -m p4reduce_lab.study.learners`: what one learner sends with AdaComp and what arrives, by kind of layer.

AdaComp's paper divides 32 bits a parameter by what one learner sends, in an encoding of its own; over the switch the
coordinates of all learners arrive at each. Both are counted here for several numbers of learners in one process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import click
import torch

from p4reduce.compressors import AdaComp, Compressed, Step, Stream
from p4reduce.compressors.step import FLOAT_BITS
from p4reduce_lab.report import Table
from p4reduce_lab.study import train
from p4reduce_lab.study.grid import TASKS, Run
from p4reduce_lab.study.sums import Compressed as Sums

LEARNERS: Final = (4, 8, 16, 32)
ROWS: Final = (
    ("convolution", "mnist-cnn", "conv"),
    ("fully connected", "mnist-mlp", "linear"),
    ("recurrent", "shakespeare-lstm", "recurrent"),
)
"""Kinds of layer, by the paper's name, and the task and the policy's kind that are measured."""


Sent = Counter[str]
"""Totals of one kind of layer over all learners and steps: elements, bins, selected elements, and bits in AdaComp's
encoding ("paper_bits", as its effective compression rate counts) and in ours ("wire_bits", codecs/coordinates.py)."""


class CountedAdaComp(AdaComp):
    """AdaComp in the form gather, which counts what it sends by kind of layer."""

    def __init__(self) -> None:
        super().__init__(form="gather")
        self.sent: dict[str | None, Sent] = {}

    def compress(self, steps: Sequence[Step]) -> list[Compressed]:
        found = super().compress(steps)
        for step, own in zip(steps, found, strict=True):
            assert isinstance(own.message, Stream) and own.sent is not None
            self.sent.setdefault(self.policy.kind(step.key, step.gradient.shape), Sent()).update(
                elements=step.flat.numel(),
                bins=-(-step.flat.numel() // step.length),
                selected=len(own.sent),
                paper_bits=own.sent_bits,
                wire_bits=8 * len(own.message.data),
            )
        return found


def measure(task_name: str, learners: int, steps: int, cache: Path) -> Mapping[str | None, Sent]:
    """Train for so many steps, and return what the learners sent in the second half of them, by kind of layer."""
    task = replace(TASKS[task_name], batch=max(TASKS[task_name].batch, learners))
    ranks = train.Ranks(Run(task_name, learners, "sgd", "adacomp-gather", 0), task, cache)
    sums = Sums(ranks.model, CountedAdaComp, learners)
    made = [own for own in sums.compressors if isinstance(own, CountedAdaComp)]
    for step in range(steps):
        if step == steps // 2:
            for compressor in made:
                compressor.sent.clear()
        ranks.update(sums.here(ranks.gradients()[0]))
    return {kind: sum((compressor.sent[kind] for compressor in made), Sent()) for kind in made[0].sent}


def row(title: str, sent: Sent, learners: int) -> list[str]:
    """Show what one learner sends and what arrives of all of them, each against float32."""
    elements, paper_bits, wire_bits = sent["elements"], sent["paper_bits"], sent["wire_bits"]

    def against_float32(bits: int, digits: int = 3) -> str:
        return f"{bits / elements:.{digits}f}, {FLOAT_BITS * elements / bits:.0f}x"

    per_bin = f"{sent['selected'] / sent['bins']:.1f}"
    every = against_float32(paper_bits), against_float32(wire_bits), against_float32(learners * wire_bits, 2)
    return [title, f"{learners}", per_bin, *every]


@click.command()
@click.option("--data", type=click.Path(path_type=Path), default=Path("out/study/data"), help="The study's data.")
@click.option("--steps", type=click.IntRange(min=2), default=200, show_default=True, help="The second half counts.")
def main(data: Path, steps: int) -> None:
    """Print the table as Markdown."""
    torch.set_num_threads(1)
    headings = ["layers", "learners", "elements a bin", "one sends, paper's bits", "one sends, our bits", "arrive"]
    shown = []
    for title, task, kind in ROWS:
        for learners in LEARNERS:
            shown.append(row(title, measure(task, learners, steps, data)[kind], learners))
            click.echo(" | ".join(shown[-1]), err=True)
    click.echo(Table(headings, shown).markdown())


if __name__ == "__main__":
    main()
