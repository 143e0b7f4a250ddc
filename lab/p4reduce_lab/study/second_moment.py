"""AdamW with another second moment: frozen after some steps, or one number for each parameter tensor.

They are there to find out what compressed gradients do to Adam. `freeze_after` is 1-bit Adam's (Tang et al., ICML 2021,
unverified): a fixed second moment makes the optimizer linear in the gradients, as momentum is. `of_tensor` is the idea
of Adam-mini (Zhang et al., 2024, unverified) with whole tensors as its blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch


class SecondMomentAdamW(torch.optim.Optimizer):
    """AdamW as torch's, but for its second moment."""

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
        """`freeze_after`: the steps after which the second moment stays as it is; `of_tensor`: take its mean."""
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
