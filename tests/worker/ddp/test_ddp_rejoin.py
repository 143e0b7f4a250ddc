"""The DDP hook on a job that is reset, on one rank. More ranks: tests/system/test_system_campaigns.py."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from p4reduce.compressors import AdaComp
from p4reduce.pytorch.ddp import DDPState, ddp_hook
from p4reduce.testing.resettable_group import ResettableGroup
from rigs.ranks import equal

pytestmark = pytest.mark.usefixtures("process_group")


def train(reset_at: set[int]) -> list[Any]:
    """Return the weights and the compressor's state after six steps of two buckets, some of them after a reset."""
    torch.manual_seed(3)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 4)), bucket_cap_mb=0.0005)
    compressor, optimizer = AdaComp(momentum=0.5), torch.optim.SGD(model.parameters(), 0.1, 0.9)
    with ResettableGroup(1) as group, DDPState(group.comms[0], compressor, module=model) as state:
        model.register_comm_hook(state, ddp_hook)
        for step in range(6):
            if step in reset_at:
                group.reset()
            optimizer.zero_grad()
            model(torch.randn(8, 20, generator=torch.Generator().manual_seed(step))).square().mean().backward()
            optimizer.step()
    return [dict(model.module.state_dict()), compressor.state_dict()]


def test_weights_and_residues_are_those_of_an_undisturbed_run() -> None:
    assert equal(train({2, 4}), train(set()))
