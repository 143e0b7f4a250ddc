"""Zeros that a model's gradients have by themselves, and what the switch saves by them: no compressor, the exact sums.

A word-level language model on the plays. The rows of the embedding that no word of a batch touches are zero blocks,
which are not sent; the output layer's gradient has none.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

from p4reduce.compressors import NoCompression
from p4reduce_lab import datasets
from p4reduce_lab.study import models
from p4reduce_lab.study.grid import TASKS, VARIANTS, Run
from p4reduce_lab.study.optimizers import make_optimizer
from p4reduce_lab.study.sums import Compressed, Gradients, Means, OnSwitch
from p4reduce_lab.study.train import gradients_of, pieces, record_of

EMBEDDING = "embedding.weight"


def train(run: Run, cache: Path, controller: str) -> dict[str, Any]:
    """Train a few steps, all of them through a running switch; return the bytes of the embedding and of the rest."""
    started = time.monotonic()
    torch.manual_seed(run.seed)
    task, variant = TASKS[run.model], VARIANTS[run.variant]
    text = datasets.words(cache)
    model = models.make(task, len(text.vocabulary))
    parameters = dict(model.named_parameters())
    parts = {"embedding": [EMBEDDING], "rest": [name for name in parameters if name != EMBEDDING]}
    sums = Compressed(model, NoCompression, run.workers)
    optimizer = make_optimizer(run, task, variant, model)
    batches = pieces(text.train, task, run.workers, torch.Generator().manual_seed(1000 + run.seed))
    losses: list[tuple[int, float]] = []
    touched: list[int] = []
    counted: dict[str, dict[str, list[dict[str, float]]]] = {part: {"dense": [], "steps": []} for part in parts}
    with OnSwitch(controller, run.id, run.workers) as switch:

        def exchange(what: str, gradients: Gradients) -> Means:
            """Exchange the parts one after the other, and note a worker's bytes."""
            means: dict[str, torch.Tensor] = {}
            for part, names in parts.items():
                found, cost = sums.over(switch, [{name: of_rank[name] for name in names} for of_rank in gradients])
                counted[part][what].append({"up": cost["bytes_up"], "down": cost["bytes_down"]})
                means |= found
            return means

        exchange(
            "dense", [{name: torch.randn_like(own) for name, own in parameters.items()} for _ in range(run.workers)]
        )
        for step in range(task.steps):
            gradients, loss = gradients_of(model, parameters, next(batches))
            with torch.no_grad():
                for name, mean in exchange("steps", gradients).items():
                    parameters[name].grad = mean
            touched.append(rows_touched(gradients[0][EMBEDDING]))
            optimizer.step()
            losses.append((step, round(loss, 4)))
    return {
        **record_of(run, model),
        task.measure: losses[-1][1],
        "train_loss": losses,
        "vocabulary": len(text.vocabulary),
        "rows_touched": round(sum(touched) / len(touched), 1),
        "bytes": counted,
        "seconds": round(time.monotonic() - started, 1),
    }


def rows_touched(gradient: torch.Tensor) -> int:
    """Return how many rows of a matrix are not zero."""
    return int((gradient != 0).any(1).sum())
