"""One training of the study: all workers in one process, their gradients exchanged in it or over the switch."""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from p4reduce.compressors import Compressor
from p4reduce_lab.study import data, models
from p4reduce_lab.study.grid import (
    BASELINES,
    CHARACTERS,
    MOMENTUM,
    NOVOGRAD_LR,
    OTHER_VARIANTS,
    TASKS,
    VARIANTS,
    Run,
    Task,
)
from p4reduce_lab.study.means import Means
from p4reduce_lab.study.on_switch import OnSwitch
from p4reduce_lab.study.ring import RINGS, Ring
from p4reduce_lab.study.rounded import ROUNDED
from p4reduce_lab.study.similarity import leading_cosine

SWITCH_STEPS = dict.fromkeys(("dense", *ROUNDED), 6)
OTHER_SWITCH_STEPS = 40
"""How many steps, spread evenly over the training, go through the switch; its sums are bit for bit the same."""
LOSS_POINTS = 40
RESIDUE_POINTS = 20
SIMILARITY_VARIANTS = ("dense", "scalecom")
TEST_CHARACTERS = 100_000
PIECE = 100
"""Characters of test text read in one go, from a state of zeros."""

Batch = tuple[torch.Tensor, torch.Tensor]


def train(run: Run, cache: Path, controller: str | None, progress: Callable[[int, int], None]) -> dict[str, Any]:
    """Train once; return the results as plain numbers. `controller`: of a running switch, for the bytes."""
    started = time.monotonic()
    torch.manual_seed(run.seed)
    task = TASKS[run.model]
    batches, test, alphabet = _data(task, run, cache)
    model = models.make(task.model, alphabet)
    parameters = dict(model.named_parameters())
    ring = Ring(RINGS[run.variant], run.workers) if run.variant in RINGS else None
    if ring is not None:
        controller = None  # there is no switch
    variants = VARIANTS | OTHER_VARIANTS
    sent = Means(model, run.variant, run.workers, lambda: variants[run.variant].make(task)) if ring is None else None
    compressors = [] if sent is None else sent.compressors
    optimizer = _optimizer(run, task, model)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, task.steps)
    if run.variant in BASELINES:  # not encoded for the wire, so the switch's bytes would be those of plain floats
        controller = None
    switch_steps = spread(SWITCH_STEPS.get(run.variant, OTHER_SWITCH_STEPS), task.steps) if controller else set()
    loss_steps, residue_steps = spread(LOSS_POINTS, task.steps), spread(RESIDUE_POINTS, task.steps)
    losses: list[tuple[int, float]] = []
    residues: list[tuple[int, float]] = []
    similarities: list[tuple[int, float, float]] = []
    diverged_at: int | None = None
    with contextlib.ExitStack() as stack:
        switch = stack.enter_context(OnSwitch(controller, run.id, run.workers)) if controller else None
        for step in range(task.steps):
            gradients, loss = gradients_of(model, parameters, next(batches))
            if not math.isfinite(loss):
                diverged_at = step
                break
            with torch.no_grad():
                if step in residue_steps and run.variant in SIMILARITY_VARIANTS:
                    similarities.append((step, *_similarities(compressors, gradients)))
                if sent is not None:
                    means = sent.of(gradients, step, switch if step in switch_steps else None)
                elif ring is not None:
                    means = ring.mean(gradients)
                for name, parameter in parameters.items():
                    parameter.grad = means[name]
            optimizer.step()
            if ring is not None:
                with torch.no_grad():
                    ring.after_step(parameters)
            schedule.step()
            if step in loss_steps:
                losses.append((step, round(loss, 4)))
            if step in residue_steps:
                residues.append((step, round(sent.residue_norm(), 4) if sent else 0.0))
            if step % 20 == 0:
                progress(step, task.steps)
    return {
        "id": run.id,
        **vars(run),
        "settings": vars(task),
        "parameters": sum(p.numel() for p in parameters.values()),
        task.measure: test(model) if diverged_at is None else None,
        "diverged_at": diverged_at,
        "train_loss": losses,
        "residue_norm": residues,
        "similarity": similarities,
        "state_per_parameter": _state_per_parameter(optimizer, parameters),
        "rates": rates_by_kind(compressors[0], parameters) if compressors else {},
        "switch": sent.measured if sent else [],
        **({"ring": ring.counted()} if ring is not None else {}),
        "weights": hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in parameters.values())).hexdigest(),
        "seconds": round(time.monotonic() - started, 1),
    }


def _optimizer(run: Run, task: Task, model: nn.Module) -> torch.optim.Optimizer:
    if run.optimizer == "adam":
        return torch.optim.Adam(model.parameters(), lr=task.adam_lr)
    if run.optimizer == "novograd":
        try:
            from pytorch_optimizer import NovoGrad
        except ImportError as error:
            raise ImportError("NovoGrad is in an optional package; in the checkout: pip install '.[study]'") from error
        return NovoGrad(model.parameters(), lr=NOVOGRAD_LR[run.model])
    return torch.optim.SGD(model.parameters(), lr=task.sgd_lr, momentum=MOMENTUM)


def _state_per_parameter(optimizer: torch.optim.Optimizer, parameters: Mapping[str, torch.Tensor]) -> float:
    """Return how many numbers the optimizer keeps for each parameter."""
    kept = (value.numel() for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value))
    return round(sum(kept) / sum(parameter.numel() for parameter in parameters.values()), 2)


def spread(points: int, steps: int) -> set[int]:
    """Return steps in the middle of equal parts of the training, and the last one."""
    return {int((i + 0.5) * steps / points) for i in range(points)} | {steps - 1}


def gradients_of(
    model: nn.Module, parameters: Mapping[str, torch.Tensor], batches: list[Batch]
) -> tuple[list[dict[str, torch.Tensor]], float]:
    """Return each worker's gradients by parameter name, and the mean of their losses."""
    gradients, total = [], 0.0
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        found = torch.autograd.grad(loss, list(parameters.values()))
        gradients.append(dict(zip(parameters, found, strict=True)))
        total += loss.item()
    return gradients, total / len(batches)


def _similarities(
    compressors: Sequence[Compressor], gradients: Sequence[Mapping[str, torch.Tensor]]
) -> tuple[float, float]:
    """Return the leading cosine of the ranks' gradients, and that of gradients and residues together."""
    totals = []
    for compressor, found in zip(compressors, gradients, strict=True):
        kept = {name: compressor.residue(name) for name in found}
        parts = (g.flatten() if (r := kept[name]) is None else g.flatten() + r for name, g in found.items())
        totals.append(torch.cat(list(parts)))
    alone = [torch.cat([gradient.flatten() for gradient in found.values()]) for found in gradients]
    return round(leading_cosine(alone), 4), round(leading_cosine(totals), 4)


def rates_by_kind(compressor: Compressor, parameters: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """Return the effective compression rates, of all compressed parameters and by kind of layer."""
    kinds: dict[str, list[str]] = {}
    for name, parameter in parameters.items():
        if compressor.policy.length(name, parameter.shape) is not None:
            kinds.setdefault(str(compressor.policy.kind(name, parameter.shape)), []).append(name)
    if not kinds:
        return {}
    rates = {kind: compressor.rate_of(*names) for kind, names in kinds.items()}
    rates = {"all": compressor.rate_of(), **rates}
    return {key: round(rate, 2) for key, rate in rates.items() if not math.isnan(rate)}  # NaN: dense so far


def _data(task: Task, run: Run, cache: Path) -> tuple[Iterator[list[Batch]], Callable[[nn.Module], float], int]:
    """Return each step's batch of every worker, the test, and the size of the alphabet."""
    generator = torch.Generator().manual_seed(1000 + run.seed)
    if task.measure == "loss":
        text = data.shakespeare(cache)
        return (
            pieces(text.train, task, run.workers, generator),
            lambda model: _test_loss(model, text.test[:TEST_CHARACTERS]),
            len(text.alphabet),
        )
    images = data.mnist(cache)
    return (
        _images(images.x_train, images.y_train, task, run.workers, generator),
        lambda model: _accuracy(model, images.x_test, images.y_test),
        0,
    )


def _images(
    x: torch.Tensor, y: torch.Tensor, task: Task, workers: int, generator: torch.Generator
) -> Iterator[list[Batch]]:
    while True:
        order = torch.randperm(len(y), generator=generator)
        for start in range(0, len(y) - task.batch + 1, task.batch):
            chosen = order[start : start + task.batch].view(workers, -1)
            yield [(x[indexes], y[indexes]) for indexes in chosen]


def pieces(
    text: torch.Tensor, task: Task, workers: int, generator: torch.Generator, characters: int = CHARACTERS
) -> Iterator[list[Batch]]:
    """Yield each step's batch of every worker: pieces of text, and the character after each of theirs."""
    while True:
        starts = torch.randint(0, len(text) - characters - 1, (task.batch, 1), generator=generator)
        rows = text[starts + torch.arange(characters + 1)].long().view(workers, -1, characters + 1)
        yield [(piece[:, :-1], piece[:, 1:].flatten()) for piece in rows]


@torch.no_grad()
def _accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """Return the accuracy on the test images, in %."""
    parts = zip(torch.split(x, 1000), torch.split(y, 1000), strict=True)
    right = sum(int((model(part).argmax(1) == labels).sum()) for part, labels in parts)
    return round(100 * right / len(y), 2)


@torch.no_grad()
def _test_loss(model: nn.Module, text: torch.Tensor) -> float:
    """Return the cross-entropy in nats a character."""
    count = (len(text) - 1) // PIECE
    x = text[: count * PIECE].long().view(count, PIECE)
    y = text[1 : count * PIECE + 1].long().view(count, PIECE)
    return round(float(F.cross_entropy(model(x), y.flatten())), 4)
