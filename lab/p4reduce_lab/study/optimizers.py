"""The optimizers and learning rates of the study's trainings."""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import nn

from p4reduce_lab.study.grid import Run, Task, Variant

_MOMENTUM: Final = 0.9
_FIRST_BETA: Final = 0.9
_NOVOGRAD_RATES: Final = {"mnist-mlp": 0.03, "mnist-mlp-4096": 0.1}
"""Learning rates of NovoGrad by model: of three to five that were tried on seed 0, the best."""


def make_optimizer(run: Run, task: Task, variant: Variant, model: nn.Module) -> torch.optim.Optimizer:
    """Make a run's optimizer. Raises ImportError where NovoGrad's package is missing."""
    if run.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=task.sgd_lr, momentum=_MOMENTUM)
    if run.optimizer == "adam":
        return torch.optim.Adam(model.parameters(), lr=task.adam_lr)
    if run.optimizer == "novograd":  # one second moment for each layer: Ginsburg et al., arXiv 1905.11286 (unverified)
        try:
            from pytorch_optimizer import NovoGrad
        except ImportError as error:
            raise ImportError("NovoGrad is in an optional package; in the checkout: pip install '.[study]'") from error
        return NovoGrad(model.parameters(), lr=_NOVOGRAD_RATES[run.model])
    matrices, others = ([own for own in model.parameters() if (own.dim() >= 2) == large] for large in (True, False))
    params = [{"params": matrices, "weight_decay": task.weight_decay}, {"params": others, "weight_decay": 0.0}]
    betas = (_FIRST_BETA if variant.beta1 is None else variant.beta1, variant.beta2 or task.beta2)
    return torch.optim.AdamW(params, lr=variant.rate * task.adam_lr, betas=betas)


def make_schedule(optimizer: torch.optim.Optimizer, task: Task) -> torch.optim.lr_scheduler.LRScheduler:
    """Make the schedule of the learning rate: down along a cosine; a transformer's rises first (`rate_at`)."""
    if task.warmup:
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_at(step, task))
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, task.steps)


def rate_at(step: int, task: Task) -> float:
    """Return the learning rate's share of its largest: a linear rise, then a cosine to a tenth."""
    if step < task.warmup:
        return (step + 1) / task.warmup
    part = (step - task.warmup) / max(1, task.steps - task.warmup)
    return 0.1 + 0.45 * (1 + math.cos(math.pi * part))
