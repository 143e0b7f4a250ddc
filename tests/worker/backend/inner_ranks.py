"""One rank of hosts whose ranks sum over another backend; arguments: HOSTS, DEVICE, BACKEND. Prints "ok" at the end."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from p4reduce import AdaComp, CollectiveError, DDPState, ddp_hook
from p4reduce.errors import InvalidTensorError, NotFiniteError, PeerRefusedError
from p4reduce.pytorch.backend.group import ProcessGroupP4Reduce

STEPS = 3


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.conv, self.fc, self.out = nn.Conv2d(1, 7, 3), nn.Linear(7 * 36, 801), nn.Linear(801, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.fc(self.conv(x).relu().flatten(1)).relu())


def backward(model: nn.Module, step: int, device: str, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
    model.zero_grad()
    loss = model(torch.randn(8, 1, 8, 8, generator=generator).to(device)).square().mean() * scale
    loss.backward()
    return loss.detach()


def gradients(model: nn.Module) -> list[torch.Tensor]:
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def hooked(state: Any, device: str) -> DistributedDataParallel:
    model = DistributedDataParallel(Net().to(device), bucket_cap_mb=0.2)
    model.register_comm_hook(state, ddp_hook)
    return model


def check_hook(outer: ProcessGroupP4Reduce, inner: dist.ProcessGroup, device: str) -> None:
    flat = DistributedDataParallel(Net().to(device), bucket_cap_mb=0.2, process_group=dist.new_group(backend="gloo"))
    comm = outer.join()
    with DDPState(outer, inner=inner) as state:
        model = hooked(state, device)
        for step in range(STEPS):
            before = comm.stats.copy()
            for each in (flat, model):
                backward(each, step, device)
            for mine, wanted in zip(gradients(model), gradients(flat), strict=True):
                torch.testing.assert_close(mine, wanted, rtol=1e-5, atol=1e-8)
        spent, whole = comm.stats - before, sum(p.numel() * p.element_size() for p in model.parameters())
        assert whole < inner.size() * spent.bytes_up < 1.15 * whole, (spent, whole)  # of all ranks of a host


def check_compressor(outer: ProcessGroupP4Reduce, inner: dist.ProcessGroup, device: str) -> None:
    """The hook over the host's memory cuts parameters alike: the same bits, as the host's sums are exact halves."""
    found, size = [], dist.get_world_size()
    for group, inside in ((outer, inner), (dist.group.WORLD, None)):
        with DDPState(group, AdaComp(), inner=inside) as state:
            assert size == 2 or (inside is None) == (state.host_plan is not None)
            model = hooked(state, device)
            found.append([(backward(model, step, device), gradients(model)[2])[1] for step in range(STEPS)])
            assert state.reports
    for mine, wanted in zip(*found, strict=True):
        assert torch.equal(mine, wanted) and mine.count_nonzero() < mine.numel()


def check_not_finite(outer: ProcessGroupP4Reduce, inner: dist.ProcessGroup, device: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    bad = torch.nan if rank == size - 1 else 1.0
    with DDPState(outer, AdaComp(), inner=inner, on_nonfinite="skip") as state:
        model = hooked(state, device)
        backward(model, 0, device)
        kept = str(state.state_dict())
        backward(model, 1, device, bad)
        assert all(gradient.isnan().all() for gradient in gradients(model)) and state.skipped_steps == 1
        assert str(state.state_dict()["compressor"]) in kept
        backward(model, 2, device)
        assert all(gradient.isfinite().all() for gradient in gradients(model))
    with DDPState(outer, inner=inner) as state:
        model = hooked(state, device)

        def poison(gradient: torch.Tensor) -> torch.Tensor:
            return gradient.index_fill(0, torch.zeros(1, dtype=torch.int64, device=device), bad)

        model.module.fc.weight.register_hook(poison)  # which one shard alone has
        with pytest.raises((InvalidTensorError, PeerRefusedError)) as caught:
            backward(model, 0, device)
        assert isinstance(caught.value, NotFiniteError) == (rank == size - inner.size()), repr(caught.value)


def check_hsdp(mesh: Any, device: str) -> None:
    losses = []
    for over in (mesh, init_device_mesh(device, (dist.get_world_size(),), backend_override={0: "gloo"})):
        model = Net().to(device)
        for layer in (model.fc, model.out):
            fully_shard(layer, mesh=over)
        fully_shard(model, mesh=over)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(STEPS):
            losses.append(backward(model, step, device).item())
            optimizer.step()
    for mine, wanted in zip(losses[:STEPS], losses[STEPS:], strict=True):
        assert abs(mine / wanted - 1) < 1e-6, losses


def check_end(outer: ProcessGroupP4Reduce, inner: dist.ProcessGroup, device: str) -> None:
    """A rank loses its job: all ranks raise, those of its host with its number."""
    state = DDPState(outer, inner=inner)
    model = hooked(state, device)
    backward(model, 0, device)
    if dist.get_rank() == 0:
        outer.join().close(wait=False)
    with pytest.raises(Exception) as caught:
        backward(model, 1, device)
    assert caught.errisinstance(CollectiveError) or dist.get_rank() == 0, repr(caught.value)
    print("ended:", caught.value, flush=True)


def main() -> None:
    hosts, device, backend = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.environ.update(P4REDUCE_HOSTS="on", P4REDUCE_HOSTID=f"host {rank // (size // hosts)}", LOCAL_RANK="0")
    torch.set_num_threads(1)
    dist.init_process_group("p4reduce")
    names = ("hosts", "gpus")
    mesh = init_device_mesh(device, (hosts, size // hosts), mesh_dim_names=names, backend_override={"gpus": backend})
    outer, inner = (mesh.get_group(name) for name in names)
    assert isinstance(outer, ProcessGroupP4Reduce) and dist.get_backend(inner) == backend
    check_hsdp(mesh, device)
    for check in (check_hook, check_compressor, check_not_finite, check_end):
        print(check.__name__, flush=True)
        check(outer, inner, device)
    dist.destroy_process_group()
    print("ok", flush=True)


if __name__ == "__main__":
    main()
