"""A script that trains in many of PyTorch's ways over gloo and over p4reduce, and writes the losses of rank 0.

torchrun --nproc-per-node 4 training_shapes.py FILE [SHAPE ...]
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

STEPS = 4
CPU = torch.device("cpu")


def net(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).to(dtype)


def batch(step: int, dtype: torch.dtype = torch.float32, rank: int | None = None) -> torch.Tensor:
    seed = 100 * step + (dist.get_rank() if rank is None else rank)
    return torch.randn(8, 20, generator=torch.Generator().manual_seed(seed)).to(dtype)


def train(
    model: nn.Module,
    dtype: torch.dtype = torch.float32,
    make: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
    rank: int | None = None,
    loss_of: Callable[[nn.Module, int], torch.Tensor] | None = None,
) -> list[float]:
    """Return the mean loss of all ranks after each step, which is `loss_of` model and step; by default of a batch."""
    optimizer = make(model.parameters(), lr=0.1)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, step) if loss_of else model(batch(step, dtype, rank)).float().square().mean()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / dist.get_world_size())
    return losses


def ddp() -> list[float]:
    return train(DistributedDataParallel(net()))


def ddp_small_buckets() -> list[float]:
    return train(DistributedDataParallel(net(), bucket_cap_mb=0.002, gradient_as_bucket_view=True))


def ddp_static_graph() -> list[float]:
    return train(DistributedDataParallel(net(), static_graph=True))


def ddp_bfloat16() -> list[float]:
    return train(DistributedDataParallel(net(torch.bfloat16)), torch.bfloat16)


def compiled(model: Any) -> Any:
    """Return it compiled; not for gloo, of which the result is the same: to compile takes as long as all shapes."""
    return model if dist.get_backend() == "gloo" else torch.compile(model, backend="aot_eager")


def ddp_compiled() -> list[float]:
    return train(compiled(DistributedDataParallel(net())))


def functional_compiled() -> list[float]:
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return functional.all_reduce(x, "sum", dist.group.WORLD) * 2

    return list(compiled(doubled)(torch.ones(7)).tolist())


def ddp_unused_parameters() -> list[float]:
    class Sometimes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.spare, self.calls = net(), nn.Linear(20, 10), 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return self.body(x) + (self.spare(x) if self.calls % 2 else 0)

    return train(DistributedDataParallel(Sometimes(), find_unused_parameters=True))


def ddp_no_sync() -> list[float]:
    def second_loss(model: nn.Module, step: int) -> torch.Tensor:
        with model.no_sync():
            model(batch(2 * step)).square().mean().backward()
        return model(batch(2 * step + 1)).square().mean()

    return train(DistributedDataParallel(net()), loss_of=second_loss)


def ddp_embedding() -> list[float]:
    def loss_of(model: nn.Module, step: int) -> torch.Tensor:
        words = torch.arange(step + dist.get_rank(), step + dist.get_rank() + 6)
        return model(words).square().mean()

    torch.manual_seed(5)
    return train(DistributedDataParallel(nn.Embedding(50, 8, sparse=True)), loss_of=loss_of)


def ddp_grad_scaler() -> list[float]:
    model = DistributedDataParallel(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120)  # infinities at first
    losses = []
    for step in range(12):
        optimizer.zero_grad()
        loss = model(batch(step)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return [*losses, scaler.get_scale()]


def ddp_uneven_inputs() -> list[float]:
    model = DistributedDataParallel(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    with Join([model]):
        for step in range(2 + dist.get_rank()):
            optimizer.zero_grad()
            loss = model(batch(step)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def zero() -> list[float]:
    def make(parameters: object, lr: float) -> torch.optim.Optimizer:
        return ZeroRedundancyOptimizer(parameters, optimizer_class=torch.optim.Adam, lr=lr)

    return train(DistributedDataParallel(net()), make=make)


def fsdp1() -> list[float]:
    return train(FullyShardedDataParallel(net(), device_id=CPU))


def fsdp2() -> list[float]:
    model = net()
    for layer in model:
        fully_shard(layer, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return train(fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),))))


def fsdp2_shared() -> list[float]:
    """Gradients are put into the host's memory, where the ranks share one."""
    model = fully_shard(net(), mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    model.set_allocate_memory_from_process_group_for_comm(True)
    losses = train(model)
    hosts = None if dist.get_backend() == "gloo" else dist.group.WORLD.join().hosts
    assert hosts is None or hosts.sums is None or hosts.sums.memory._shared[1] > 0
    return losses


def fsdp2_state() -> list[float]:
    model = fully_shard(net(), mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    train(model)
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    return [weight.abs().sum().item() for weight in whole.values()]


def fsdp2_bfloat16() -> list[float]:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    return train(fully_shard(net(), mesh=init_device_mesh("cpu", (dist.get_world_size(),)), mp_policy=policy))


def fsdp2_divide_factor() -> list[float]:
    """Gradients are summed with a factor on each rank, PREMUL_SUM, which gloo has not: there they are divided."""
    model = fully_shard(net(), mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    model.set_gradient_divide_factor(1.0)
    model.set_force_sum_reduction_for_comms(dist.get_backend() == "gloo")
    return train(model)


def hsdp() -> list[float]:
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("replicate", "shard"))
    return train(fully_shard(net(), mesh=mesh))


def hsdp_over_hosts() -> list[float]:
    """Ranks 0 and 1 are on one host, 2 and 3 on another: shards are in a host's memory, replicas over the switch."""
    before = os.environ.get("P4REDUCE_HOSTS", "on")
    os.environ.update(P4REDUCE_HOSTS="on", P4REDUCE_HOSTID=f"host {dist.get_rank() // 2}")
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("replicate", "shard"))
    torch.manual_seed(5)
    model = fully_shard(nn.Sequential(nn.Linear(20, 8192), nn.ReLU(), nn.Linear(8192, 10)), mesh=mesh)
    losses = train(model, make=lambda parameters, lr: torch.optim.SGD(parameters, lr=lr / 100))
    files = map(os.readlink, Path("/proc/self/fd").iterdir())
    assert dist.get_backend() == "gloo" or any(file.startswith("/memfd:p4reduce-host") for file in files)
    os.environ["P4REDUCE_HOSTS"] = before
    return losses


def tensor_parallel() -> list[float]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = parallelize_module(net(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return train(model, rank=0)


def dtensor() -> list[float]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    whole = torch.arange(64.0).reshape(8, 8)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])
    assert isinstance(columns, DTensor) and torch.equal(columns.full_tensor(), whole)
    return [(rows @ columns.t()).sum().full_tensor().item()]


SHAPES: tuple[Callable[[], list[float]], ...] = (
    ddp, ddp_small_buckets, ddp_static_graph, ddp_bfloat16, ddp_compiled, functional_compiled, ddp_unused_parameters,
    ddp_no_sync, ddp_embedding, ddp_grad_scaler, ddp_uneven_inputs, zero, fsdp1, fsdp2, fsdp2_shared, fsdp2_state,
    fsdp2_bfloat16, fsdp2_divide_factor, hsdp, hsdp_over_hosts, tensor_parallel, dtensor,
)  # fmt: skip


def losses_over(backend: str, names: list[str]) -> dict[str, list[float] | str]:
    dist.init_process_group(backend)
    losses: dict[str, list[float] | str] = {}
    for shape in SHAPES:
        name = shape.__name__
        if not names or name in names:
            torch._dynamo.reset()
            try:
                losses[name] = shape()
                assert backend == "gloo" or dist.group.WORLD._job.comm.underflows == 0
            except Exception as error:
                losses[name] = f"{type(error).__name__}: {error}"
            print(backend, name, losses[name], flush=True)
    if backend == "p4reduce":
        print("controller:", dist.group.WORLD._job._controller or "none", flush=True)
    dist.destroy_process_group()
    return losses


def main() -> None:
    file, *names = sys.argv[1:]
    losses = {backend: losses_over(backend, names) for backend in ("gloo", "p4reduce")}
    if os.environ["RANK"] == "0":
        Path(file).write_text(json.dumps(losses))


if __name__ == "__main__":
    main()
