"""Staging and the hook on a CUDA device."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from p4reduce.compressors import AdaComp
from p4reduce.pytorch.ddp import DDPState, ddp_hook
from p4reduce.pytorch.staging import stage
from p4reduce.testing.local_group import LocalGroup

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]
SLOW = 100_000_000
"""Clock cycles: what does not wait for them is too early."""


def test_copies_wait_for_the_callers_stream_and_it_for_them() -> None:
    tensors = [torch.zeros(1000, 1000, device="cuda") for _ in range(3)]
    all_staged = []
    for number, tensor in enumerate(tensors):
        torch.cuda._sleep(SLOW)
        tensor.fill_(number + 1)
        all_staged.append(stage(tensor.device, [tensor], [tensor]))
    for staged in all_staged:
        assert staged.reads[0].is_pinned()
        staged.arrive(10.0)
        staged.writes[0].mul_(2)
        staged.give_back()
    for number, (staged, tensor) in enumerate(zip(all_staged, tensors, strict=True)):
        staged.wait()
        assert tensor.eq(2 * (number + 1)).all()


def test_a_future_s_value_is_back_on_every_stream_that_waits() -> None:
    tensor = torch.ones(1000, 1000, device="cuda")
    staged = stage(tensor.device, [tensor], [tensor])
    future = staged.future()
    child = future.then(lambda done: done.value())
    staged.arrive(10.0)
    staged.writes[0].mul_(2)
    staged.give_back()
    staged.complete(future, tensor)
    with torch.cuda.stream(torch.cuda.Stream()):
        assert child.wait().eq(2).all()


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("compressed", [False, True])
def test_a_model_on_cuda_gets_the_gradients_of_one_on_the_host(dtype: torch.dtype, compressed: bool) -> None:
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(64, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 1)).to(dtype)
    plain = copy.deepcopy(network).cuda()
    model = DistributedDataParallel(network.cuda(), bucket_cap_mb=0.1)
    given = torch.randn(16, 64, device="cuda", dtype=dtype)
    compressor = AdaComp() if compressed else None
    with LocalGroup(1) as group, DDPState(group.comms[0], compressor, module=model) as state:
        model.register_comm_hook(state, ddp_hook)
        for _ in range(3):
            for module in (plain, model):
                module.zero_grad()
                module(given).float().square().mean().backward()
            for mine, wanted in zip(model.module.parameters(), plain.parameters(), strict=True):
                assert mine.grad is not None and wanted.grad is not None and mine.grad.is_cuda
                if not compressed:
                    torch.testing.assert_close(mine.grad, wanted.grad)
        assert not compressed or state.reports
