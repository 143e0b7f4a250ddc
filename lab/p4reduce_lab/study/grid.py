"""What the study runs: grid.toml, read."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

SEEDS: Final = (0, 1, 2)
WARMUP_STEPS: Final = 50
"""Steps with which ScaleCom begins; bytes are those of the steps after them."""
TRANSFORMER: Final = "shakespeare-transformer"


@dataclass(frozen=True)
class Task:
    """A model and how it is trained."""

    model: str
    steps: int
    batch: int
    sgd_lr: float
    adam_lr: float
    measure: str
    block_threshold: float
    context: int = 0
    """Characters of context. This and all that follow are settings of a transformer; 0: the model is none."""
    layers: int = 0
    width: int = 0
    heads: int = 0
    warmup: int = 0
    clip: float = 0.0
    beta2: float = 0.0
    weight_decay: float = 0.0

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that a record has: those that are not 0."""
        return {name: value for name, value in vars(self).items() if value}

    @property
    def digits(self) -> int:
        """Decimal places of the task's results in the tables."""
        return 2 if self.measure == "accuracy" else 4


@dataclass(frozen=True)
class Variant:
    """The sum of the gradients (a compressor or a ring) and the recipe of the training."""

    compressor: str = "none"
    options: Mapping[str, Any] = field(default_factory=dict)
    lengths: Mapping[str, Any] = field(default_factory=dict)
    """The arguments of a Policy."""
    ring: Mapping[str, Any] | None = None
    """The options of Inceptionn; empty: plain numbers."""
    clip: Literal["mean", "ranks"] = "mean"
    """The gradient whose norm is limited: the mean, as users do, or each rank's before it is compressed."""
    beta1: float | None = None
    beta2: float | None = None
    rate: float = 1.0
    """Factor of the task's learning rate."""


@dataclass(frozen=True)
class Run:
    """One training."""

    model: str  #: the name of a task
    workers: int
    optimizer: str  #: "sgd" (with momentum), "adam", "novograd" or "adamw"
    variant: str
    seed: int

    @property
    def id(self) -> str:
        return f"{self.model}-{self.workers}-{self.optimizer}-{self.variant}-{self.seed}"

    @property
    def job(self) -> str:
        """The name of its job: the end of its id, as a job's name has at most 63 characters."""
        return self.id[-63:].lstrip("-")


_GRID: Final = tomllib.loads(Path(__file__).with_name("grid.toml").read_text(encoding="utf-8"))
TASKS: Final = {name: Task(**table) for name, table in _GRID["tasks"].items()}
VARIANTS: Final = {name: Variant(**table) for name, table in _GRID["variants"].items()}
GROUPS: Final[dict[str, list[str]]] = _GRID["groups"]
TABLES: Final[list[dict[str, Any]]] = _GRID["tables"]


def runs() -> Iterator[Run]:
    """Yield all runs, in the order in which they are trained."""
    yield from dict.fromkeys(
        Run(task, workers, part.get("optimizer", "sgd"), variant, seed)
        for part in _GRID["parts"]
        for seed in part.get("seeds", SEEDS)
        for task in part["tasks"]
        for workers in part.get("workers", [4])
        for name in part["variants"]
        for variant in GROUPS.get(name, [name])
    )
