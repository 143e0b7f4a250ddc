"""Trainings of a decoder-only transformer as people do them today, and what may help a compressor there.

All workers are in this process, as in train.py. The hooks of torch are in hooks.py.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional as F

from p4reduce.compressors import (
    AdaComp,
    Compressor,
    NoCompression,
    OmniReduce,
    Policy,
    ScaleCom,
)
from p4reduce_lab.study import data
from p4reduce_lab.study.baselines import BlockAdaComp
from p4reduce_lab.study.grid import CHUNK, MOMENTUM, TASKS, WARMUP_STEPS, LanguageTask, Run
from p4reduce_lab.study.means import Means
from p4reduce_lab.study.models import Transformer
from p4reduce_lab.study.on_switch import OnSwitch
from p4reduce_lab.study.second_moment import SecondMomentAdamW
from p4reduce_lab.study.train import gradients_of, pieces, rates_by_kind, spread

FIRST_BETA = 0.9
LOSS_POINTS = 40
TEST_POINTS = 5
RESIDUE_POINTS = 20
SWITCH_STEPS = 10
TEST_CHARACTERS = 64_000
EARLIER_TEST_CHARACTERS = 12_800
"""Of the test losses before the last."""

Gradients = list[dict[str, torch.Tensor]]


@dataclass(frozen=True)
class Recipe:
    """A compressor, and what is changed about the optimizer."""

    make: Callable[[], Compressor] = NoCompression
    second_moment: Literal["element", "frozen", "tensor"] = "element"
    clip: Literal["mean", "ranks"] = "mean"
    """Limit the norm of the mean gradient, as users do, or of each rank's before it is compressed."""
    beta1: float | None = None
    beta2: float | None = None
    rate: float = 1.0
    """Times the task's learning rate."""


def _policy(**lengths: Any) -> Policy:
    return Policy(**{"linear": 500, "embedding": 500, **lengths})


def _adacomp(
    form: str = "gather", *, warmup_steps: int = 0, momentum: float = 0.0, **lengths: Any
) -> Callable[[], Compressor]:
    return lambda: AdaComp(_policy(**lengths), form=form, warmup_steps=warmup_steps, momentum=momentum)


def _scalecom() -> Compressor:
    return ScaleCom(_policy(linear=CHUNK, embedding=CHUNK), b=0.1, warmup_steps=WARMUP_STEPS)


WARM = 80
"""Steps sent whole in the recipes that begin so: a fifth of the training."""

RECIPES = {
    "dense": Recipe(),
    "adacomp-gather": Recipe(_adacomp()),
    "adacomp-sum": Recipe(_adacomp("sum")),
    "adacomp-shared": Recipe(_adacomp("shared")),
    "scalecom": Recipe(_scalecom),
    "block-adacomp": Recipe(BlockAdaComp),
    "block-top-k": Recipe(lambda: OmniReduce(ratio=0.02)),
    "adacomp-warm": Recipe(_adacomp(warmup_steps=WARM)),
    "adacomp-bins-50": Recipe(_adacomp(linear=50, embedding=50)),
    "adacomp-bins-50-warm": Recipe(_adacomp(linear=50, embedding=50, warmup_steps=WARM)),
    "adacomp-dense-ends": Recipe(
        _adacomp(names=[("embedding.*", "dense"), ("position.*", "dense"), ("output.*", "dense")])
    ),
    "adacomp-clip-ranks": Recipe(_adacomp(), clip="ranks"),
    "dense-momentum": Recipe(_adacomp(linear="dense", embedding="dense", momentum=FIRST_BETA), beta1=0.0, clip="ranks"),
    "adacomp-momentum": Recipe(_adacomp(momentum=FIRST_BETA), beta1=0.0, clip="ranks"),
    "adacomp-momentum-bins-50": Recipe(_adacomp(linear=50, embedding=50, momentum=FIRST_BETA), beta1=0.0, clip="ranks"),
    "momentum-bins-50-clip-mean": Recipe(_adacomp(linear=50, embedding=50, momentum=FIRST_BETA), beta1=0.0),
    "adacomp-momentum-warm": Recipe(_adacomp(warmup_steps=WARM, momentum=FIRST_BETA), beta1=0.0, clip="ranks"),
    "adacomp-clip-ranks-beta1-0": Recipe(_adacomp(), beta1=0.0, clip="ranks"),
    "dense-beta1-0": Recipe(beta1=0.0),
    "adacomp-beta1-0": Recipe(_adacomp(), beta1=0.0),
    "adacomp-bins-50-beta1-0": Recipe(_adacomp(linear=50, embedding=50), beta1=0.0),
    "adacomp-beta2-999": Recipe(_adacomp(), beta2=0.999),
    "adacomp-beta2-9": Recipe(_adacomp(), beta2=0.9),
    "adacomp-rate-4": Recipe(_adacomp(), rate=4.0),
    "dense-clip-ranks": Recipe(clip="ranks"),
    "dense-frozen": Recipe(second_moment="frozen", clip="ranks"),
    "adacomp-frozen": Recipe(_adacomp(warmup_steps=WARM), second_moment="frozen", clip="ranks"),
    "adacomp-bins-50-frozen": Recipe(
        _adacomp(linear=50, embedding=50, warmup_steps=WARM), second_moment="frozen", clip="ranks"
    ),
    "dense-tensor": Recipe(second_moment="tensor", clip="ranks"),
    "adacomp-tensor": Recipe(_adacomp(), second_moment="tensor", clip="ranks"),
}


def train(run: Run, cache: Path, controller: str | None, progress: Callable[[int, int], None]) -> dict[str, Any]:
    """Train once; return the results as plain numbers. `controller`: of a running switch, for the bytes."""
    started = time.monotonic()
    torch.manual_seed(run.seed)
    task = language_task(run)
    text = data.shakespeare(cache)
    model = make_model(task, len(text.alphabet))
    parameters = dict(model.named_parameters())
    recipe = RECIPES.get(run.variant, Recipe())
    exchanged = Means(model, run.variant, run.workers, recipe.make)
    compressors = exchanged.compressors
    optimizer = make_optimizer(run, task, model, recipe)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_at(step, task))
    batches = pieces(text.train, task, run.workers, torch.Generator().manual_seed(1000 + run.seed), task.context)
    switch_steps = spread(SWITCH_STEPS, task.steps) if controller else set()
    loss_steps, residue_steps = spread(LOSS_POINTS, task.steps), spread(RESIDUE_POINTS, task.steps)
    test_steps = {round((part + 1) * task.steps / TEST_POINTS) - 1 for part in range(TEST_POINTS - 1)}
    losses: list[tuple[int, float]] = []
    tests: list[tuple[int, float]] = []
    residues: list[tuple[int, float]] = []
    norms: list[tuple[int, float, float]] = []
    diverged_at: int | None = None
    with contextlib.ExitStack() as stack:
        switch = stack.enter_context(OnSwitch(controller, run.id, run.workers)) if controller else None
        for step in range(task.steps):
            gradients, loss = gradients_of(model, parameters, next(batches))
            if not math.isfinite(loss):
                diverged_at = step
                break
            with torch.no_grad():
                exact = norm_of([torch.stack(parts).mean(0) for parts in _by_name(gradients).values()])
                if recipe.clip == "ranks":
                    for of_rank in gradients:
                        limit_norm(list(of_rank.values()), task.clip)
                means = exchanged.of(gradients, step, switch if step in switch_steps else None)
                for name, parameter in parameters.items():
                    parameter.grad = means[name].clone()
                sent = norm_of([means[name] for name in parameters])
                if recipe.clip == "mean":
                    nn.utils.clip_grad_norm_(model.parameters(), task.clip)
            optimizer.step()
            schedule.step()
            if step in loss_steps:
                losses.append((step, round(loss, 4)))
                norms.append((step, round(exact, 4), round(sent, 4)))
            if step in test_steps:
                tests.append((step, test_loss(model, text.test[:EARLIER_TEST_CHARACTERS], task.context)))
            if step in residue_steps:
                residues.append((step, round(exchanged.residue_norm(), 4)))
            if step % 20 == 0:
                progress(step, task.steps)
    return {
        "id": run.id,
        **vars(run),
        "settings": vars(task),
        "parameters": sum(p.numel() for p in parameters.values()),
        task.measure: None if diverged_at is not None else test_loss(model, text.test[:TEST_CHARACTERS], task.context),
        "diverged_at": diverged_at,
        "train_loss": losses,
        "test_loss": tests,
        "norms": norms,
        "residue_norm": residues,
        "rates": rates_by_kind(compressors[0], parameters) if compressors else {},
        "switch": exchanged.measured,
        "seconds": round(time.monotonic() - started, 1),
    }


def language_task(run: Run) -> LanguageTask:
    """Return a run's task. TypeError if it is not a transformer's."""
    task = TASKS[run.model]
    if not isinstance(task, LanguageTask):
        raise TypeError(f"{run.model} is no transformer")
    return task


def make_model(task: LanguageTask, alphabet_size: int) -> Transformer:
    """Make the task's model with new weights."""
    return Transformer(alphabet_size, layers=task.layers, width=task.width, heads=task.heads, context=task.context)


def make_optimizer(run: Run, task: LanguageTask, model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Make AdamW, with the recipe's second moment, or SGD with momentum; matrices alone have a weight decay."""
    if run.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=task.sgd_lr, momentum=MOMENTUM)
    matrices = [parameter for parameter in model.parameters() if parameter.dim() >= 2]
    others = [parameter for parameter in model.parameters() if parameter.dim() < 2]
    params: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": task.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    first = FIRST_BETA if recipe.beta1 is None else recipe.beta1
    betas = (first, recipe.beta2 or task.beta2)
    if recipe.second_moment == "element":
        return torch.optim.AdamW(params, lr=recipe.rate * task.adam_lr, betas=betas)
    freeze_after = WARM if recipe.second_moment == "frozen" else None
    of_tensor = recipe.second_moment == "tensor"
    return SecondMomentAdamW(params, recipe.rate * task.adam_lr, betas, freeze_after=freeze_after, of_tensor=of_tensor)


def rate_at(step: int, task: LanguageTask) -> float:
    """Return the learning rate's share of its largest: a linear rise, then a cosine to a tenth."""
    if step < task.warmup:
        return (step + 1) / task.warmup
    part = (step - task.warmup) / max(1, task.steps - task.warmup)
    return 0.1 + 0.45 * (1 + math.cos(math.pi * part))


def norm_of(tensors: Sequence[torch.Tensor]) -> float:
    """Return the L2 norm of several tensors together."""
    return float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(own) for own in tensors])))


def limit_norm(tensors: Sequence[torch.Tensor], limit: float) -> None:
    """Scale tensors in place so that their L2 norm together is at most `limit`."""
    norm = norm_of(tensors)
    if norm > limit:
        for own in tensors:
            own.mul_(limit / norm)


@torch.no_grad()
def test_loss(model: nn.Module, text: torch.Tensor, context: int) -> float:
    """Return the cross-entropy in nats a character, of pieces of `context` characters."""
    count = (len(text) - 1) // context
    x, y = (part.long().view(count, context) for part in (text[: count * context], text[1 : count * context + 1]))
    pairs = zip(torch.split(x, 100), torch.split(y, 100), strict=True)
    total = sum(float(F.cross_entropy(model(one), other.flatten(), reduction="sum")) for one, other in pairs)
    return round(total / (count * context), 4)


def _by_name(gradients: Gradients) -> dict[str, list[torch.Tensor]]:
    return {name: [of_rank[name] for of_rank in gradients] for name in gradients[0]}
