"""What the benchmark trains: a perceptron of a million parameters on scikit-learn's digits, and tasks of the study.

Imported by workers alone; it takes torch and scikit-learn.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import p4reduce
from p4reduce.compressors.interface import by_text
from p4reduce_lab import datasets
from p4reduce_lab.models import perceptron
from p4reduce_lab.study import optimizers, train
from p4reduce_lab.study.grid import TASKS, VARIANTS, Run, Task
from p4reduce_lab.training import load_script

ALONE = "no exchange"
"""A variant in which each rank trains for itself."""
_BATCH = 16
_LEARNING_RATE, _MOMENTUM = 0.02, 0.9
_HIDDEN = 1024
_ONE_BUCKET_MB = 100
_POWERSGD_RANK = 2
_ADACOMP_BINS = "p4reduce AdaComp "
"""The beginning of the variants that name the elements of a linear layer's bin; their convolutions are dense."""
_COMPRESSORS: Mapping[str, Callable[[], Any]] = {
    "p4reduce dense": lambda: None,
    "p4reduce 16": lambda: p4reduce.Quantize(16),
    "p4reduce 8": lambda: p4reduce.Quantize(8),
    "p4reduce AdaComp": p4reduce.AdaComp,
    "p4reduce auto": lambda: "auto",
}


@dataclass
class Recipe:
    """What is trained, with which data and settings, on one rank; the same each time."""

    model: nn.Module
    batches: Iterator[train.Batch]
    """Batches of this rank, one a step."""
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    schedule: Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]
    clip: float = 0.0
    """The largest L2 norm of the gradient; 0: any."""
    quality: Callable[[nn.Module], float] = lambda model: math.nan
    """Quality on this rank's share of the test data, where it has one: the accuracy, or a language model's loss."""


class Trainer:
    """One variant of the training, on this rank."""

    def __init__(
        self, peer: str, comm: p4reduce.Communicator, group_of: Callable[[str], dist.ProcessGroup], recipe: Recipe
    ) -> None:
        """`group_of` returns the process group of a backend."""
        # PowerSGD's collectives of several buckets may come in another order on each rank, which gloo does not bear.
        megabytes = _ONE_BUCKET_MB if peer.startswith("gloo PowerSGD") else None
        backend = peer.partition(" ")[0] if peer.endswith((" backend", " FSDP2")) else "gloo"
        self._recipe = recipe
        self._model: Any = recipe.model
        if peer.endswith(" FSDP2"):
            self._model = fully_shard(recipe.model, mesh=DeviceMesh.from_group(group_of(backend), "cpu"))
        elif peer != ALONE:
            self._model = DistributedDataParallel(
                recipe.model, bucket_cap_mb=megabytes, process_group=group_of(backend)
            )
        self.parameters = sum(parameter.numel() for parameter in self._model.parameters())
        self._optimizer = recipe.optimizer(self._model)
        self._schedule = recipe.schedule(self._optimizer)
        self._state: p4reduce.DDPState | None = None
        self._add_hook(peer, comm)

    def steps(self, count: int, *, apart: bool = False) -> float:
        """Train so many steps; return the seconds of the steps alone. `apart`: all ranks begin each step at once."""
        spent = 0.0
        for _ in range(count):
            x, y = next(self._recipe.batches)
            if apart:
                dist.barrier()
            began = time.perf_counter()
            self._optimizer.zero_grad()
            loss: torch.Tensor = nn.functional.cross_entropy(self._model(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            if self._recipe.clip:
                nn.utils.clip_grad_norm_(self._model.parameters(), self._recipe.clip)
            self._optimizer.step()
            self._schedule.step()
            spent += time.perf_counter() - began
        return spent

    def quality(self) -> float:
        """Return the quality on this rank's share of the test data."""
        return self._recipe.quality(getattr(self._model, "module", self._model))

    def close(self) -> None:
        """Leave the communicator to the next trainer."""
        if self._state is not None:
            self._state.close()

    def _add_hook(self, peer: str, comm: p4reduce.Communicator) -> None:
        if peer == "gloo fp16":
            self._model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        elif peer.startswith("gloo PowerSGD"):
            rank = int(peer.removeprefix("gloo PowerSGD") or _POWERSGD_RANK)
            state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=2)
            self._model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        elif peer in _COMPRESSORS or peer.startswith(_ADACOMP_BINS):
            bins = peer.removeprefix(_ADACOMP_BINS)
            compressor = _COMPRESSORS[peer]() if peer in _COMPRESSORS else by_text(f"adacomp:conv=dense,linear={bins}")
            self._state = p4reduce.DDPState(comm, compressor, module=self._model, optimizer=self._optimizer)
            self._model.register_comm_hook(self._state, p4reduce.ddp_hook)


def of_study(rank: int, world_size: int, *, task: str, seed: int, data: str, settings: Mapping[str, Any]) -> Recipe:
    """Return the training of a task of the study, with other `settings`; `data`: the folder with its data.

    The weights and batches are those of the study with this seed.
    """
    changed = replace(TASKS[task], **settings)
    run = Run(task, world_size, "adamw" if changed.context else "sgd", "dense", seed)
    torch.manual_seed(seed)
    batches, _, alphabet = train.data_of(changed, run, Path(data))
    return Recipe(
        train.make_model(changed, alphabet),
        (batch[rank] for batch in batches),
        partial(optimizers.make_optimizer, run, changed, VARIANTS[run.variant]),
        partial(optimizers.make_schedule, task=changed),
        changed.clip,
        _share(changed, Path(data), rank, world_size),
    )


def _share(task: Task, data: Path, rank: int, world_size: int) -> Callable[[nn.Module], float]:
    """Return what measures a task's quality on a rank's share of the test data."""
    if task.measure == "loss":
        text = datasets.shakespeare(data).test[: train.EARLIER_TEST_CHARACTERS].chunk(world_size)[rank]
        return lambda model: train.test_loss(model, text, task)
    images = datasets.mnist(data)
    mine = replace(images, x_test=images.x_test[rank::world_size], y_test=images.y_test[rank::world_size])
    return lambda model: datasets.accuracy(model, mine)


def digits(rank: int, world_size: int) -> Recipe:
    """Return the training of a perceptron of 1.1 million parameters, at one learning rate; it is not tested."""
    torch.manual_seed(0)
    model = perceptron(64, _HIDDEN, _HIDDEN, 10)
    (x, y), _ = load_script().digits()
    draw = torch.Generator().manual_seed(1)

    def batches() -> Iterator[train.Batch]:
        while True:
            mine = torch.randint(len(y), (_BATCH * world_size,), generator=draw)[rank::world_size]
            yield x[mine], y[mine]

    return Recipe(
        model,
        batches(),
        lambda model: torch.optim.SGD(model.parameters(), _LEARNING_RATE, _MOMENTUM),
        lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0),
    )
