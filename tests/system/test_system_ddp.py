"""The DDP hook in processes over a tree, against gloo: the tests start this file as each rank."""

import gc
import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import p4reduce
from p4reduce.compressors import AdaComp
from p4reduce.pytorch.ddp import DDPState, ddp_hook
from p4reduce.testing.in_process import exchange_all
from p4reduce_contracts.jobs.lease import Lease, LeasedSwitch
from p4reduce_lab.processes import Children
from p4reduce_lab.system import running_system
from rigs.fork_server import ForkServer
from rigs.limits import LIMIT_S
from rigs.networks import RACKS
from rigs.python_path import PYTHONPATH

STEPS = 6
RANKS = 2 * RACKS
COMPRESSORS = ("none", "sum", "gather", "auto")


@pytest.mark.slow
def test_gradients_are_those_of_gloo(torch_server: ForkServer, tmp_path: Path) -> None:
    with Children(tmp_path) as children, running_system(children, racks=RACKS) as system:
        for compressor in COMPRESSORS:
            system.client.create_job(compressor, RANKS, slots=16)
        of_test = {"GLOO_SOCKET_IFNAME": "lo", "P4REDUCE_CONTROLLER": system.controller, "PYTHONPATH": PYTHONPATH}
        variables, switch_of = {**os.environ, **of_test}, system.switch_of
        outputs = torch_server.launch(
            tmp_path, RANKS, __file__, environment=variables, timeout_s=LIMIT_S, switch_of=switch_of
        )
    assert all(output.count("as expected") == len(COMPRESSORS) for output in outputs)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)
        self.fc = nn.Linear(8 * 36, 40)
        self.out = nn.Linear(40, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.fc(self.conv(x).relu().flatten(1)).relu())


def net() -> Net:
    torch.manual_seed(4)
    return Net()


def make() -> DistributedDataParallel:
    return DistributedDataParallel(net(), bucket_cap_mb=0.01)  # several buckets


def backward(model: nn.Module, rank: int, step: int) -> None:
    generator = torch.Generator().manual_seed(100 * step + rank)
    images, classes = torch.randn(8, 1, 8, 8, generator=generator), torch.randint(10, (8,), generator=generator)
    model.zero_grad()
    nn.functional.cross_entropy(model(images), classes).backward()


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def same_everywhere(tensors: dict[str, torch.Tensor]) -> bool:
    digest = hashlib.sha256(b"".join(t.contiguous().numpy().tobytes() for t in tensors.values())).hexdigest()
    everyone: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(everyone, digest)
    return len(set(everyone)) == 1


def expected_of_adacomp(compressors: list[AdaComp], group: Lease, step: int) -> dict[str, torch.Tensor]:
    """Return AdaComp's result for all ranks' gradients, exchanged in this process."""
    given = []
    for rank in range(RANKS):
        local = net()
        backward(local, rank, step)
        given.append(gradients(local))
    leases = [replace(group, rank=rank, switches=(LeasedSwitch(),)) for rank in range(RANKS)]
    outcome, *_ = exchange_all(compressors, given, leases)
    return dict(outcome.means)


def check_steps(comm: p4reduce.Communicator, compressor: AdaComp | None) -> None:
    """A few steps, side by side with gloo, or with an exchange in this process."""
    usual, ours = make(), make()
    alone = [AdaComp(form=compressor.form) for _ in range(RANKS)] if compressor is not None else []
    rank = dist.get_rank()
    with DDPState(comm, compressor, module=ours) as state:
        ours.register_comm_hook(state, ddp_hook)
        for step in range(STEPS):
            for model in (usual, ours):
                backward(model, rank, step)
            expected, found = gradients(usual.module), gradients(ours.module)
            if compressor is not None:
                expected = expected_of_adacomp(alone, comm.lease, step)
            assert expected.keys() == found.keys()
            for name, gradient in found.items():
                torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-7, msg=name)
            assert same_everywhere(found), f"step {step}: the ranks have different bits"
        assert comm.stats.collectives > STEPS + 2, "one bucket only: nothing overlaps"
    print(f"rank {rank}: as expected", flush=True)


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    for compressor in COMPRESSORS:
        with p4reduce.join(compressor) as comm:
            check_steps(comm, None if compressor == "none" else AdaComp(form=compressor))
    gc.collect()  # the models hold the process group: drop them first, or torch may abort the process at exit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
