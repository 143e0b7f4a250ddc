"""One training of the study: all workers in one process, their gradients exchanged in it or over the switch."""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional as F

from p4reduce_lab import datasets
from p4reduce_lab.measured_training import rates_by_kind
from p4reduce_lab.models import LSTM, Transformer, mnist_cnn, mnist_mlp, perceptron
from p4reduce_lab.study import optimizers
from p4reduce_lab.study.compressors import make_compressor
from p4reduce_lab.study.grid import GROUPS, TASKS, VARIANTS, Run, Task
from p4reduce_lab.study.sums import Compressed, Ring, on_switch

OTHER_SWITCH_STEPS: Final = 40
SWITCH_STEPS: Final = dict.fromkeys(("dense", *GROUPS["rounded"]), 6)
"""Steps, spread evenly over the training, that go through the switch; its sums are bit for bit the same."""
TRANSFORMER_SWITCH_STEPS: Final = 10
LOSS_POINTS: Final = 40
RESIDUE_POINTS: Final = 20
TEST_POINTS: Final = 5
"""Points at which the transformer's test loss is measured; all but the last of fewer characters."""
TEST_CHARACTERS, EARLIER_TEST_CHARACTERS = 100_000, 12_800
TRANSFORMER_TEST_CHARACTERS = 64_000
_CHARACTERS, _TEST_CHARACTERS = 32, 100
"""Characters in the LSTM's pieces of text, in training and in the test; each piece begins with a state of zeros."""

Batch = tuple[torch.Tensor, torch.Tensor]


class Ranks:
    """The ranks of a run, all in this process: one model, of which each finds the gradients of a batch of its own."""

    def __init__(self, run: Run, task: Task, cache: Path, device: str = "cpu") -> None:
        torch.manual_seed(run.seed)
        self._batches, self.test, alphabet = data_of(task, run, cache)
        self.model = make_model(task, alphabet).to(device)
        self.parameters = dict(self.model.named_parameters())
        self.optimizer = optimizers.make_optimizer(run, task, VARIANTS[run.variant], self.model)

    def gradients(self) -> tuple[list[dict[str, torch.Tensor]], float]:
        """Return what `gradients_of` does of the next batches."""
        return gradients_of(self.model, self.parameters, next(self._batches))

    def update(self, means: Mapping[str, torch.Tensor], clip: float = 0.0) -> None:
        """Make a step with the mean gradients by parameter name; `clip`: the largest L2 norm of all; 0: any."""
        for name, parameter in self.parameters.items():
            parameter.grad = means[name].to(parameter.device, copy=True)
        if clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), clip)
        self.optimizer.step()


def train(run: Run, cache: Path, controller: str | None, device: str = "cpu") -> dict[str, Any]:
    """Train once; return the results as plain numbers. `controller`: a running switch's, for the bytes.

    The model and the optimizer are on `device`, the gradients are compressed and summed in the host's memory.
    """
    started = time.monotonic()
    task, variant = TASKS[run.model], VARIANTS[run.variant]
    ranks = Ranks(run, task, cache, device)
    parameters = ranks.parameters
    sums: Compressed | Ring
    if variant.ring is None:
        sums = Compressed(ranks.model, lambda: make_compressor(variant, task), run.workers)
    else:
        sums, controller = Ring(variant, run.workers), None
    schedule = optimizers.make_schedule(ranks.optimizer, task)
    usual = TRANSFORMER_SWITCH_STEPS if task.context else SWITCH_STEPS.get(run.variant, OTHER_SWITCH_STEPS)
    switch_steps = spread(usual, task.steps) if controller else set()
    loss_steps, residue_steps = spread(LOSS_POINTS, task.steps), spread(RESIDUE_POINTS, task.steps)
    test_steps = {round((part + 1) * task.steps / TEST_POINTS) - 1 for part in range(TEST_POINTS - 1)}
    found: dict[str, list[Any]] = {name: [] for name in ("train_loss", "residue_norm", "switch")}
    found |= {"test_loss": []} if task.context else {}
    diverged_at: int | None = None
    with contextlib.ExitStack() as stack:
        comms = stack.enter_context(on_switch(controller, run.job, run.workers)) if controller else ()
        for step in range(task.steps):
            gradients, loss = ranks.gradients()
            if not math.isfinite(loss):
                diverged_at = step
                break
            with torch.no_grad():
                if variant.clip == "ranks":
                    for of_rank in gradients:
                        limit_norm(list(of_rank.values()), task.clip)
                if comms and step in switch_steps and not isinstance(sums, Ring):
                    means, cost = sums.over(comms, gradients)
                    found["switch"].append({"step": step, **cost})
                else:
                    means = sums.here(gradients)
            ranks.update(means, task.clip if variant.clip == "mean" else 0.0)
            schedule.step()
            if step in loss_steps:
                found["train_loss"].append((step, round(loss, 4)))
            if task.context and step in test_steps:
                found["test_loss"].append((step, ranks.test(ranks.model, EARLIER_TEST_CHARACTERS)))
            if step in residue_steps:
                found["residue_norm"].append((step, round(sums.residue_norm(), 4)))
    return {
        "id": run.id,
        **vars(run),
        "settings": task.settings,
        "parameters": sum(own.numel() for own in parameters.values()),
        task.measure: ranks.test(ranks.model, None) if diverged_at is None else None,
        "diverged_at": diverged_at,
        **found,
        "state_per_parameter": _state_per_parameter(ranks.optimizer, parameters),
        "rates": rates_by_kind(sums.compressors[0], parameters) if sums.compressors else {},
        **({"ring": sums.counted()} if isinstance(sums, Ring) else {}),
        "weights": hashlib.sha256(b"".join(p.numpy(force=True).tobytes() for p in parameters.values())).hexdigest(),
        "seconds": round(time.monotonic() - started, 1),
    }


def make_model(task: Task, symbols: int = 0) -> nn.Module:
    """Make a task's model with new weights; `symbols`: characters that a language model knows."""
    if task.model == "mnist-mlp":
        return mnist_mlp()
    if task.model == "mnist-hdc":  # INCEPTIONN's net for handwritten digits (unverified)
        return perceptron(784, 500, 500, 500, 500, 10)
    if task.model == "mnist-cnn":
        return mnist_cnn()
    if task.model == "shakespeare-transformer":
        return Transformer(symbols, layers=task.layers, width=task.width, heads=task.heads, context=task.context)
    return LSTM(symbols)


def spread(points: int, steps: int) -> set[int]:
    """Return steps in the middle of equal parts of the training, and the last one."""
    return {int((i + 0.5) * steps / points) for i in range(points)} | {steps - 1}


def gradients_of(
    model: nn.Module, parameters: Mapping[str, torch.Tensor], batches: list[Batch]
) -> tuple[list[dict[str, torch.Tensor]], float]:
    """Return each worker's gradients by parameter name, in the host's memory, and the mean of their losses."""
    gradients, total, device = [], 0.0, next(iter(parameters.values())).device
    for x, y in batches:
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        found = torch.autograd.grad(loss, list(parameters.values()))
        gradients.append(dict(zip(parameters, (own.cpu() for own in found), strict=True)))
        total += loss.item()
    return gradients, total / len(batches)


def limit_norm(tensors: Sequence[torch.Tensor], limit: float) -> None:
    """Scale tensors in place so that their L2 norm together is at most `limit`."""
    norm = float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(own) for own in tensors])))
    if norm > limit:
        for own in tensors:
            own.mul_(limit / norm)


def _state_per_parameter(optimizer: torch.optim.Optimizer, parameters: Mapping[str, torch.Tensor]) -> float:
    """Return how many numbers the optimizer keeps for each parameter."""
    kept = (value.numel() for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value))
    return round(sum(kept) / sum(parameter.numel() for parameter in parameters.values()), 2)


def data_of(
    task: Task, run: Run, cache: Path
) -> tuple[Iterator[list[Batch]], Callable[[nn.Module, int | None], float], int]:
    """Return each step's batch of every worker, the test (of some characters, None: all), and the alphabet's size."""
    generator = torch.Generator().manual_seed(1000 + run.seed)
    if task.measure == "loss":
        text = datasets.shakespeare(cache)
        most = TRANSFORMER_TEST_CHARACTERS if task.context else TEST_CHARACTERS
        return (
            pieces(text.train, task, run.workers, generator),
            lambda model, characters: test_loss(model, text.test[: characters or most], task),
            len(text.alphabet),
        )
    images = datasets.mnist(cache)
    given = datasets.batches(images, task.batch, run.workers, generator)
    return given, lambda model, _: datasets.accuracy(model, images), 0


def pieces(text: torch.Tensor, task: Task, workers: int, generator: torch.Generator) -> Iterator[list[Batch]]:
    """Yield each step's batch of every worker: pieces of text, and the character after each of theirs."""
    characters = task.context or _CHARACTERS
    while True:
        starts = torch.randint(0, len(text) - characters - 1, (task.batch, 1), generator=generator)
        rows = text[starts + torch.arange(characters + 1)].long().view(workers, -1, characters + 1)
        yield [(piece[:, :-1], piece[:, 1:].flatten()) for piece in rows]


@torch.no_grad()
def test_loss(model: nn.Module, text: torch.Tensor, task: Task) -> float:
    """Return the cross-entropy in nats a character."""
    characters = task.context or _TEST_CHARACTERS
    count = (len(text) - 1) // characters
    x, y = (
        part.long().view(count, characters) for part in (text[: count * characters], text[1 : count * characters + 1])
    )
    device = next(model.parameters()).device
    pairs = zip(torch.split(x.to(device), 100), torch.split(y.to(device), 100), strict=True)
    total = sum(float(F.cross_entropy(model(one), other.flatten(), reduction="sum")) for one, other in pairs)
    return round(total / (count * characters), 4)
