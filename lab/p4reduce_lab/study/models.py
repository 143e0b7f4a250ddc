"""The study's models, small enough to train on one processor core, and their optimizers and learning rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional as F

from p4reduce_lab.study.grid import NOVOGRAD_LR, Run, Task, Variant

_MOMENTUM: Final = 0.9
_FIRST_BETA: Final = 0.9
_FREEZE_AFTER: Final = 80
"""Steps: a fifth of the transformer's training."""


def make(task: Task, symbols: int = 0) -> nn.Module:
    """Make a task's model with new weights; `symbols`: characters that a language model knows."""
    if task.model == "mnist-mlp":
        return mnist_mlp()
    if task.model == "mnist-hdc":  # INCEPTIONN's net for handwritten digits (unverified)
        return _perceptron(784, 500, 500, 500, 500, 10)
    if task.model == "mnist-cnn":
        return _mnist_cnn()
    if task.model == "shakespeare-transformer":
        return Transformer(symbols, layers=task.layers, width=task.width, heads=task.heads, context=task.context)
    return LSTM(symbols)


def mnist_mlp() -> nn.Module:
    """Make linear layers 784-300-100-10: float32 [batch, 1, 28, 28] to logits [batch, 10]; 266,610 parameters."""
    return _perceptron(784, 300, 100, 10)


def _perceptron(*widths: int) -> nn.Module:
    layers = [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *layers[:-1])


def _mnist_cnn() -> nn.Module:
    """Make 2 convolutions, 2 linear layers: float32 [batch, 1, 28, 28] to logits [batch, 10]; 54,314 parameters."""
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10)),
    )


class LSTM(nn.Module):
    """One LSTM layer of 128 over embeddings of 64."""

    def __init__(self, symbols: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, 64)
        self.lstm = nn.LSTM(64, 128, batch_first=True)
        self.output = nn.Linear(128, symbols)

    def forward(self, signs: torch.Tensor) -> torch.Tensor:
        """Map int64 [batch, time] to the next sign's logits [batch * time, symbols]; the state starts at zero."""
        states, _ = self.lstm(self.embedding(signs))
        logits: torch.Tensor = self.output(states).flatten(0, 1)
        return logits


class Transformer(nn.Module):
    """A decoder-only transformer: layers of pre-norm causal attention and a GELU layer of four times the width.

    12 x `layers` x `width`^2 parameters, besides embeddings, norms and the output layer.
    """

    def __init__(self, symbols: int, *, layers: int, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(_Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, symbols, bias=False)
        for embedding in (self.embedding, self.position):
            nn.init.normal_(embedding.weight, std=0.1)
        for name, layer in self.named_modules():
            if isinstance(layer, nn.Linear):
                last = name.endswith(("project", "down"))  # of a branch beside the residual connection
                nn.init.normal_(layer.weight, std=(layer.in_features * (2 * layers if last else 1)) ** -0.5)

    def forward(self, signs: torch.Tensor) -> torch.Tensor:
        """Map int64 [batch, time], time at most `context`, to the next sign's logits [batch * time, symbols]."""
        hidden = self.embedding(signs) + self.position.weight[: signs.shape[1]]
        for block in self.blocks:
            hidden = block(hidden)
        logits: torch.Tensor = self.output(self.norm(hidden)).flatten(0, 1)
        return logits


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width, bias=False)
        self.project = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        batch, time, width = hidden.shape
        query, key, value = (
            self.attention(self.norm_1(hidden)).view(batch, time, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.project(attended.transpose(1, 2).reshape(batch, time, width))
        out: torch.Tensor = hidden + self.down(F.gelu(self.up(self.norm_2(hidden))))
        return out


def make_optimizer(run: Run, task: Task, variant: Variant, model: nn.Module) -> torch.optim.Optimizer:
    """Make a run's optimizer. Raises ImportError where NovoGrad's package is missing."""
    if run.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=task.sgd_lr, momentum=_MOMENTUM)
    if run.optimizer == "adam":
        return torch.optim.Adam(model.parameters(), lr=task.adam_lr)
    if run.optimizer == "novograd":
        try:
            from pytorch_optimizer import NovoGrad
        except ImportError as error:
            raise ImportError("NovoGrad is in an optional package; in the checkout: pip install '.[study]'") from error
        return NovoGrad(model.parameters(), lr=NOVOGRAD_LR[run.model])
    matrices, others = ([own for own in model.parameters() if (own.dim() >= 2) == large] for large in (True, False))
    params: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": task.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
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
