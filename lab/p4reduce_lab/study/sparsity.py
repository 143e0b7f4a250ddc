"""Zeros that a model's gradients have by themselves, and what the switch saves by them: no compressor, the exact sums.

A word-level language model on the plays. The rows of the embedding that no word of a batch touches are zero blocks,
which are not sent; the output layer's gradient has none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from p4reduce.compressors import NoCompression
from p4reduce_lab.study import data
from p4reduce_lab.study.grid import MOMENTUM, TASKS, Run
from p4reduce_lab.study.models import WordLSTM
from p4reduce_lab.study.on_switch import OnSwitch
from p4reduce_lab.study.train import gradients_of, pieces

EMBEDDING = ("embedding.weight",)

Gradients = Sequence[Mapping[str, torch.Tensor]]


def train(run: Run, cache: Path, controller: str, progress: Callable[[int, int], None]) -> dict[str, Any]:
    """Train a few steps, all of them through a running switch; return the bytes of the embedding and of the rest."""
    started = time.monotonic()
    torch.manual_seed(run.seed)
    task = TASKS[run.model]
    text = data.words(cache)
    model = WordLSTM(len(text.vocabulary))
    parameters = dict(model.named_parameters())
    parts = {"embedding": EMBEDDING, "rest": tuple(name for name in parameters if name not in EMBEDDING)}
    compressors = [NoCompression() for _ in range(run.workers)]
    for compressor in compressors:
        compressor.bind(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=task.sgd_lr, momentum=MOMENTUM)
    batches = pieces(text.train, task, run.workers, torch.Generator().manual_seed(1000 + run.seed))
    losses: list[tuple[int, float]] = []
    counted: dict[str, list[dict[str, float]]] = {part: [] for part in parts}
    with OnSwitch(controller, run.id, run.workers) as switch:

        def exchange(part: str, gradients: Gradients) -> dict[str, Any]:
            """The means of this part's parameters, and a worker's bytes."""
            own = [{name: of_rank[name] for name in parts[part]} for of_rank in gradients]
            outcomes, reports, _ = switch.exchange(compressors, own)
            up, down = (
                sum(getattr(report, f"bytes_{direction}") for report in reports) for direction in ("up", "down")
            )
            return {"means": outcomes[0].means, "bytes": {"up": up / run.workers, "down": down / run.workers}}

        full = [{name: torch.randn_like(own) for name, own in parameters.items()} for _ in range(run.workers)]
        dense = {part: exchange(part, full)["bytes"] for part in parts}
        touched = []
        for step in range(task.steps):
            gradients, loss = gradients_of(model, parameters, next(batches))
            with torch.no_grad():
                for part in parts:
                    found = exchange(part, gradients)
                    counted[part].append(found["bytes"])
                    for name, mean in found["means"].items():
                        parameters[name].grad = mean
            touched.append(rows_touched(gradients[0][EMBEDDING[0]]))
            optimizer.step()
            losses.append((step, round(loss, 4)))
            progress(step, task.steps)
    return {
        "id": run.id,
        **vars(run),
        "settings": vars(task),
        "parameters": sum(own.numel() for own in parameters.values()),
        task.measure: losses[-1][1],
        "diverged_at": None,
        "train_loss": losses,
        "residue_norm": [],
        "rates": {},
        "switch": [],
        "vocabulary": len(text.vocabulary),
        "rows_touched": round(sum(touched) / len(touched), 1),
        "bytes": {part: {"dense": [dense[part]], "steps": counted[part]} for part in parts},
        "seconds": round(time.monotonic() - started, 1),
    }


def rows_touched(gradient: torch.Tensor) -> int:
    """Return how many rows of a matrix are not zero."""
    return int((gradient != 0).any(1).sum())
