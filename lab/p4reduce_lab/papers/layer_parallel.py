"""Layer-parallel training: a deep network's stages learn side by side, each from inputs that were stored for it.

After arXiv 2009.01462, as others describe it (unverified): a residual network's blocks are cut into K stages, and for
each training image every stage but the first has a stored input lam_k.

serial pass    Ordinary training through all stages; what enters each stage is stored.
parallel pass  Stage k computes X_k from lam_k, and learns to hit the next stage's stored input:
                   penalty               beta/2 |X_k - lam_k+1|^2
                   augmented Lagrangian  the same + kappa_k+1 . (X_k - lam_k+1)
               the last stage learns the labels. Then lam goes down the gradient of the sum of all of these, and
               kappa up. No stage waits for another: with a processor each, the pass takes 1 / K of a serial one.
control        beta = 0: in a parallel pass the last stage alone learns, from the stored inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from p4reduce_lab.datasets import Images, accuracy

SERIAL, PARALLEL = "s", "p"


@dataclass(frozen=True)
class Settings:
    """The settings of every training."""

    images: int = 10_000
    batch: int = 128
    blocks: int = 16
    width: int = 64
    lr: float = 0.05
    momentum: float = 0.9
    beta: float = 0.01  #: 0.1 diverges, 0.03 loses more, 0.003 is nearly the control
    lam_rate: float = 0.5
    """A step of lam, in units of 1 / beta: at 1 a stage's next target is its output less the next stage's gradient."""


@dataclass(frozen=True)
class Variant:
    """The passes that are made, in order, and the tie between stages in the parallel ones."""

    passes: str
    stages: int = 1
    multipliers: bool = False  #: augmented Lagrangian; else penalty
    control: bool = False  #: beta = 0

    @property
    def ideal_time(self) -> float:
        """The time in serial passes, with a processor for each stage and nothing lost between them."""
        return self.passes.count(SERIAL) + self.passes.count(PARALLEL) / self.stages


VARIANTS = {
    "serial, 3 passes": Variant("sss"),
    "serial, 4 passes": Variant("ssss"),
    "serial, 5 passes": Variant("sssss"),
    "penalty, K = 2": Variant("spspsp", 2),
    "augmented Lagrangian, K = 2": Variant("spspsp", 2, multipliers=True),
    "control beta = 0, K = 2": Variant("spspsp", 2, control=True),
    "penalty, K = 4": Variant("spspsp", 4),
    "augmented Lagrangian, K = 4": Variant("spspsp", 4, multipliers=True),
    "control beta = 0, K = 4": Variant("spspsp", 4, control=True),
}


class Block(nn.Module):
    """x + W relu(x)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        changed: torch.Tensor = x + self.linear(F.relu(x))
        return changed


def make_stages(count: int, settings: Settings) -> nn.Sequential:
    """Make the network as `count` stages of as many blocks each; the weights do not depend on `count`."""
    first = nn.Sequential(nn.Flatten(), nn.Linear(784, settings.width))
    blocks = [Block(settings.width) for _ in range(settings.blocks)]
    last = nn.Sequential(nn.ReLU(), nn.Linear(settings.width, 10))
    each = settings.blocks // count
    stages = [nn.Sequential(*blocks[i * each : (i + 1) * each]) for i in range(count)]
    stages[0].insert(0, first)
    stages[-1].append(last)
    return nn.Sequential(*stages)


class Training:
    """The stages, and each image's stored input and multiplier for every stage but the first."""

    def __init__(self, variant: Variant, seed: int, images: Images, settings: Settings) -> None:
        torch.manual_seed(seed)
        self.variant, self.settings = variant, settings
        self.x, self.y = images.x_train[: settings.images], images.y_train[: settings.images]
        self.stages = make_stages(variant.stages, settings)
        self.optimizer = torch.optim.SGD(self.stages.parameters(), settings.lr, settings.momentum)
        steps = len(variant.passes) * (len(self.y) // settings.batch)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, steps)
        inner = variant.stages - 1
        self.lam = [torch.zeros(len(self.y), settings.width) for _ in range(inner)]
        self.kappa = [torch.zeros(len(self.y), settings.width) for _ in range(inner)]
        self.generator = torch.Generator().manual_seed(1000 + seed)
        self.diverged = False

    def run(self) -> None:
        for kind in self.variant.passes:
            order = torch.randperm(len(self.y), generator=self.generator)
            batch = self.settings.batch
            for indexes in torch.split(order, batch)[: len(order) // batch]:
                self.optimizer.zero_grad()
                loss = self.serial_step(indexes) if kind == SERIAL else self.parallel_step(indexes)
                if not math.isfinite(loss):
                    self.diverged = True
                    return
                self.optimizer.step()
                self.schedule.step()

    def serial_step(self, indexes: torch.Tensor) -> float:
        """Find the gradients of all stages, and store what enters them. Return the loss."""
        x = self.x[indexes]
        for k, stage in enumerate(self.stages):
            if k > 0:
                self.lam[k - 1][indexes] = x.detach()
            x = stage(x)
        loss = F.cross_entropy(x, self.y[indexes])
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()

    def parallel_step(self, indexes: torch.Tensor) -> float:
        """Find each stage's gradients from its stored inputs alone, then move these. Return the last stage's loss."""
        beta = 0.0 if self.variant.control else self.settings.beta
        inputs = [self.x[indexes], *(lam[indexes].requires_grad_() for lam in self.lam)]
        last = len(self.stages) - 1
        gaps: list[torch.Tensor] = []  # X_k - lam_k+1, of every stage but the last
        loss = torch.zeros(())
        for k, (stage, given) in enumerate(zip(self.stages, inputs, strict=True)):
            if k == last:
                loss = F.cross_entropy(stage(given), self.y[indexes])
                loss.backward()  # type: ignore[no-untyped-call]
            elif beta:
                gap = stage(given) - inputs[k + 1].detach()
                each = beta / 2 * gap.square().sum(1) + (self.kappa[k][indexes] * gap).sum(1)
                each.mean().backward()
                gaps.append(gap.detach())
        for k, gap in enumerate(gaps):
            gradient = inputs[k + 1].grad
            assert gradient is not None
            of_sum = gradient * len(indexes) - self.kappa[k][indexes] - beta * gap  # by lam_k+1, for each image
            moved = self.settings.lam_rate / beta * of_sum
            self.lam[k][indexes] -= moved
            if self.variant.multipliers:
                self.kappa[k][indexes] += beta * (gap + moved)
        return loss.item()


def run(seed: int, images: Images, settings: Settings | None = None) -> Iterator[dict[str, Any]]:
    """Yield a record for each variant."""
    settings = settings or Settings()
    for name, variant in VARIANTS.items():
        training = Training(variant, seed, images, settings)
        training.run()
        yield {
            "trial": "layer-parallel",
            "variant": name,
            "seed": seed,
            "settings": asdict(settings),
            "accuracy": None if training.diverged else accuracy(training.stages, images),
        }
