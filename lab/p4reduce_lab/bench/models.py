"""What the benchmark trains: a perceptron of a million parameters on scikit-learn's digits.

Imported by workers alone; it takes torch and scikit-learn.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import p4reduce

_TEST_IMAGES = 360
_BATCH = 16
_LEARNING_RATE, _MOMENTUM = 0.02, 0.9
_HIDDEN = 1024
_ONE_BUCKET_MB = 100


class Trainer:
    """One variant of the training, on this rank; the same weights and data each time."""

    def __init__(
        self,
        peer: str,
        comm: p4reduce.Communicator,
        rank: int,
        world_size: int,
        group_of: Callable[[str], dist.ProcessGroup],
    ) -> None:
        """`group_of` returns the process group of a backend."""
        torch.manual_seed(0)
        model, self._data, self._test = digits()
        # PowerSGD's collectives of several buckets may come in another order on each rank, which gloo does not bear.
        megabytes = _ONE_BUCKET_MB if peer == "gloo PowerSGD" else None
        backend = peer.partition(" ")[0] if peer.endswith((" backend", " FSDP2")) else "gloo"
        group = group_of(backend)
        self._model: Any
        if peer.endswith(" FSDP2"):
            self._model = fully_shard(model, mesh=DeviceMesh.from_group(group, "cpu"))
        else:
            self._model = DistributedDataParallel(model, bucket_cap_mb=megabytes, process_group=group)
        self.parameters = sum(parameter.numel() for parameter in self._model.parameters())
        self._optimizer = torch.optim.SGD(self._model.parameters(), _LEARNING_RATE, _MOMENTUM)
        self._add_hook(peer, comm)
        self._rank, self._world_size = rank, world_size
        self._order = torch.Generator().manual_seed(1)

    def steps(self, count: int) -> float:
        """Train so many steps; return the seconds, of the steps alone."""
        spent = 0.0
        for _ in range(count):
            x, y = self._data
            chosen = torch.randint(len(y), (_BATCH * self._world_size,), generator=self._order)
            mine = chosen[self._rank :: self._world_size]
            dist.barrier()
            began = time.perf_counter()
            self._optimizer.zero_grad()
            loss: torch.Tensor = nn.functional.cross_entropy(self._model(x[mine]), y[mine])
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
            spent += time.perf_counter() - began
        return spent

    @torch.no_grad()
    def accuracy(self) -> float:
        """Return the share of the test images that the model classifies correctly."""
        model = getattr(self._model, "module", self._model)
        x, y = self._test
        return float((model(x).argmax(1) == y).float().mean())

    def _add_hook(self, peer: str, comm: p4reduce.Communicator) -> None:
        if peer == "gloo fp16":
            self._model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        elif peer == "gloo PowerSGD":
            state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
            self._model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        elif peer in ("p4reduce dense", "p4reduce AdaComp"):
            compressor = p4reduce.AdaComp() if peer == "p4reduce AdaComp" else None
            summing = p4reduce.DDPState(comm, compressor, module=self._model)
            self._model.register_comm_hook(summing, p4reduce.ddp_hook)
        elif peer == "p4reduce 8":
            rounded = p4reduce.DDPState(comm, p4reduce.Quantize(8), module=self._model)
            self._model.register_comm_hook(rounded, p4reduce.ddp_hook)


Data = tuple[torch.Tensor, torch.Tensor]


def digits() -> tuple[nn.Module, Data, Data]:
    """Return a perceptron of 1.1 million parameters, and images and labels to train on and to test with."""
    layers = [nn.Linear(64, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, 10)]
    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    x, y = torch.tensor(pixels, dtype=torch.float32)[order] / 16, torch.tensor(labels)[order]
    return nn.Sequential(*layers), (x[:-_TEST_IMAGES], y[:-_TEST_IMAGES]), (x[-_TEST_IMAGES:], y[-_TEST_IMAGES:])
