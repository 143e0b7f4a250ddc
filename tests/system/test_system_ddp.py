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
from p4reduce.codecs import coordinates
from p4reduce.compressors import AdaComp, Decompressed, Form, Integers, Step, Stream
from p4reduce.compressors.interface import AUTO
from p4reduce.group import Group, group_of
from p4reduce.pytorch.ddp import DDPState, ddp_hook
from p4reduce_lab.processes import Children
from p4reduce_lab.system import running_system
from rigs.fork_server import ForkServer
from rigs.limits import LIMIT_S
from rigs.networks import RACKS

STEPS = 6
RANKS = 2 * RACKS
COMPRESSORS = ("none", "sum", "gather", "auto")
TESTS = Path(__file__).parents[1]


@pytest.mark.slow
def test_gradients_are_those_of_gloo(torch_server: ForkServer, tmp_path: Path) -> None:
    with Children(tmp_path) as children, running_system(children, racks=RACKS) as system:
        for compressor in COMPRESSORS:
            system.client.create_job(compressor, RANKS, slots=16)
        of_test = {"GLOO_SOCKET_IFNAME": "lo", "P4REDUCE_CONTROLLER": system.controller, "PYTHONPATH": str(TESTS)}
        variables, switch_of = {**os.environ, **of_test}, system.switch_of
        outputs = torch_server.launch(
            tmp_path, RANKS, __file__, environment=variables, timeout_s=LIMIT_S, switch_of=switch_of
        )
    assert all(output.count("as gloo") == len(COMPRESSORS) for output in outputs)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)
        self.fc = nn.Linear(8 * 36, 40)
        self.out = nn.Linear(40, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.fc(self.conv(x).relu().flatten(1)).relu())


def make() -> DistributedDataParallel:
    torch.manual_seed(4)
    return DistributedDataParallel(Net(), bucket_cap_mb=0.01)  # several buckets


def data(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(8, 1, 8, 8, generator=generator), torch.randint(10, (8,), generator=generator)


def gradients(model: DistributedDataParallel) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in model.module.named_parameters() if p.grad is not None}


def same_everywhere(tensors: dict[str, torch.Tensor]) -> bool:
    digest = hashlib.sha256(b"".join(t.contiguous().numpy().tobytes() for t in tensors.values())).hexdigest()
    everyone: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(everyone, digest)
    return len(set(everyone)) == 1


def expected_of_adacomp(
    alone: AdaComp, local: dict[str, torch.Tensor], mean: dict[str, torch.Tensor], group: Group
) -> dict[str, torch.Tensor]:
    """What AdaComp should make of the local gradients, with its scales and its sums agreed over gloo."""
    expected, states = dict(mean), {}
    for name, gradient in local.items():
        if gradient.dim() < 2:
            continue
        step = Step(name, gradient, alone.state_of(name), Form(alone.form), group)
        if first := alone.initial_metadata(step):
            scale = alone.agreed_scale(mean_over_ranks(torch.tensor([first])).numpy())
            step = replace(step, state=replace(step.state, scale=scale))
        compressed = alone.compress(step)
        message = compressed.message
        scale = None
        if isinstance(message, Integers):
            sent = message.values * message.unit
            scale = alone.agreed_scale(mean_over_ranks(torch.tensor([compressed.metadata])).numpy())
        else:
            assert isinstance(message, Stream)
            own, _ = coordinates.decode(message.data, gradient.numel())
            sent = torch.zeros(gradient.numel())
            sent[torch.from_numpy(own.indices)] = torch.from_numpy(own.signs).float() * own.scale
        expected[name] = mean_over_ranks(sent.view_as(gradient))
        left = Decompressed(expected[name].flatten(), compressed.kept, compressed.sent_bits, scale=scale)
        states[name] = step.state.after(left)
    alone.commit_step(states)
    return expected


def mean_over_ranks(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.clone()
    dist.all_reduce(tensor)
    return tensor / dist.get_world_size()


def check_steps(comm: p4reduce.Communicator, compressor: AdaComp | None) -> None:
    """A few steps, side by side with gloo; with the form "auto" only that all ranks have the same bits."""
    loss = nn.CrossEntropyLoss()
    usual, ours = make(), make()
    alone = AdaComp(form=compressor.form if compressor is not None else AUTO)
    rank = dist.get_rank()
    with DDPState(comm, compressor, module=ours) as state:
        ours.register_comm_hook(state, ddp_hook)
        for step in range(STEPS):
            x, y = data(rank, step)
            for model in (usual, ours):
                model.zero_grad()
                loss(model(x), y).backward()
            expected, found = gradients(usual), gradients(ours)
            if compressor is not None:
                local = make().module
                loss(local(x), y).backward()
                parts = {name: p.grad for name, p in local.named_parameters() if p.grad is not None}
                group = group_of(comm.lease)
                expected = expected_of_adacomp(alone, parts, expected, group) if alone.form != AUTO else {}
            for name in expected:
                gradient = found[name]
                torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-7, msg=name)
            assert same_everywhere(found), f"step {step}: the ranks have different bits"
        assert comm.stats.collectives > STEPS + 2, "one bucket only: nothing overlaps"
    print(f"rank {rank}: as gloo", flush=True)


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
