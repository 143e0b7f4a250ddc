"""The optimizers and learning rates of the study's trainings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Final

import torch
from torch import nn

from p4reduce_lab.papers.novograd import novograd
from p4reduce_lab.study.grid import Run, Task, Variant

_MOMENTUM: Final = 0.9
_FIRST_BETA: Final = 0.9
_FREEZE_AFTER: Final = 80
"""Steps until the second moment is frozen: a fifth of the transformer's training."""


def make_optimizer(run: Run, task: Task, variant: Variant, model: nn.Module) -> torch.optim.Optimizer:
    """Make a run's optimizer. Raises ImportError where NovoGrad's package is missing."""
    if run.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=task.sgd_lr, momentum=_MOMENTUM)
    if run.optimizer == "adam":
        return torch.optim.Adam(model.parameters(), lr=task.adam_lr)
    if run.optimizer == "novograd":
        return novograd(model, run.model)
    matrices, others = ([own for own in model.parameters() if (own.dim() >= 2) == large] for large in (True, False))
    params = [{"params": matrices, "weight_decay": task.weight_decay}, {"params": others, "weight_decay": 0.0}]
    betas = (_FIRST_BETA if variant.beta1 is None else variant.beta1, variant.beta2 or task.beta2)
    rate = variant.rate * task.adam_lr
    if variant.second_moment == "element":
        return torch.optim.AdamW(params, lr=rate, betas=betas)
    freeze_after = _FREEZE_AFTER if variant.second_moment == "frozen" else None
    of_tensor = variant.second_moment == "tensor"
    return SecondMomentAdamW(params, rate, betas, freeze_after=freeze_after, of_tensor=of_tensor)


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


class SecondMomentAdamW(torch.optim.Optimizer):
    """AdamW as torch's, but for its second moment: to find out what compressed gradients do to Adam.

    `freeze_after` is 1-bit Adam's (Tang et al., ICML 2021, unverified): the steps after which the second moment stays
    as it is, which makes the optimizer linear in the gradients, as momentum is. `of_tensor` takes its mean, the idea of
    Adam-mini (Zhang et al., 2024, unverified) with whole tensors as its blocks.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        betas: tuple[float, float],
        eps: float = 1e-8,
        *,
        freeze_after: int | None = None,
        of_tensor: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": 0.0})
        self._betas, self._eps, self._freeze_after, self._of_tensor = betas, eps, freeze_after, of_tensor
        self._steps = 0

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Take one step; a closure is not supported."""
        assert closure is None
        self._steps += 1
        counted = min(self._steps, self._freeze_after or self._steps)
        first, second = self._betas
        for group in self.param_groups:
            for parameter in group["params"]:
                state, gradient = self.state[parameter], parameter.grad
                if not state:
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(gradient), torch.zeros_like(gradient)
                state["exp_avg"].lerp_(gradient, 1 - first)
                if counted == self._steps:
                    state["exp_avg_sq"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
                moment = state["exp_avg_sq"].mean() if self._of_tensor else state["exp_avg_sq"]
                root = (moment / (1 - second**counted)).sqrt().add_(self._eps)
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.sub_(state["exp_avg"] / root * (group["lr"] / (1 - first**self._steps)))
