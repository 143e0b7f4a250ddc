"""The compressor that suits an optimizer, and the first moment that it takes over; on one rank."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import p4reduce
from p4reduce.communicator import Communicator
from p4reduce.compressors import AdaComp, Compressor, Policy, Quantize
from p4reduce.errors import InvalidTensorError
from p4reduce.pytorch.backend.compressed import CompressedSums
from p4reduce.pytorch.ddp import DDPState, ddp_hook

BETAS = (0.8, 0.99)


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Embedding(30, 8), nn.Flatten(), nn.Linear(32, 20))


def adamw(model: nn.Module, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01, betas=BETAS, **options)


def train(model: DistributedDataParallel, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        words = torch.randint(30, (8, 4), generator=torch.Generator().manual_seed(step))
        model(words).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("make", "kind", "momentum", "lengths"),
    [
        (adamw, AdaComp, 0.8, (50, 50)),
        (lambda model: torch.optim.RAdam(model.parameters(), betas=(0.0, 0.9)), AdaComp, 0, (50, 50)),
        (lambda model: torch.optim.SGD(model.parameters(), momentum=0.9), AdaComp, 0, (500, 500)),
        (lambda model: torch.optim.Adagrad(model.parameters()), Quantize, 0, None),
    ],
)
def test_the_optimizer_decides(make: Any, kind: type[Compressor], momentum: float, lengths: Any) -> None:
    model = net()
    optimizer = make(model)
    before = optimizer.state_dict()
    compressor, why = p4reduce.recommend(model, optimizer)
    assert type(compressor) is kind and compressor.momentum == momentum
    assert why.startswith(f"{type(optimizer).__name__}: ") and "\n" not in why
    if lengths is not None:
        found = [compressor.policy.length(name, torch.Size((30, 8))) for name in ("0.weight", "2.weight")]
        assert tuple(found) == lengths
        assert compressor.policy.kind("0.weight", torch.Size((30, 8))) == "embedding", "it knows the layers"
    assert optimizer.state_dict() == before


def test_groups_with_different_first_moments_are_refused() -> None:
    groups = [{"params": [nn.Parameter(torch.ones(2))], "betas": (beta1, 0.9)} for beta1 in (0.9, 0.8)]
    with pytest.raises(ValueError, match=r"first moments of \[0\.8, 0\.9\]: give all the same beta1"):
        p4reduce.recommend(net(), torch.optim.AdamW(groups))


@pytest.mark.usefixtures("process_group")
def test_auto_trains_as_the_same_settings_by_hand(comm: Communicator) -> None:
    ends = []
    for auto in (True, False):
        module = net()
        model = DistributedDataParallel(module)
        if auto:
            optimizer = adamw(module)
            state = DDPState(comm, "auto", module=model, optimizer=optimizer)
        else:
            optimizer = torch.optim.AdamW(module.parameters(), lr=0.01, betas=(0.0, BETAS[1]))
            state = DDPState(comm, AdaComp(Policy(linear=50, embedding=50), momentum=BETAS[0]), module=model)
        with state:
            model.register_comm_hook(state, ddp_hook)
            train(model, optimizer, 5)
        ends.append(torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()]))
    assert torch.equal(*ends)


@pytest.mark.usefixtures("process_group")
def test_the_first_moment_is_given_back(comm: Communicator) -> None:
    """At the end; after an error; in what is saved meanwhile; and taken again after it was loaded."""
    model = DistributedDataParallel(net())
    optimizer = adamw(model)
    group = optimizer.param_groups[0]
    with DDPState(comm, "auto", module=model, optimizer=optimizer) as state:
        model.register_comm_hook(state, ddp_hook)
        train(model, optimizer, 2)
        assert group["betas"] == (0.0, BETAS[1])
        saved = optimizer.state_dict()
        assert saved["param_groups"][0]["betas"] == BETAS
        optimizer.load_state_dict(saved)
        group = optimizer.param_groups[0]
        assert group["betas"] == BETAS
        train(model, optimizer, 1)
        assert group["betas"] == (0.0, BETAS[1])
        with pytest.raises(InvalidTensorError):
            (model(torch.zeros(1, 4, dtype=torch.int64)).sum() * torch.inf).backward()
        assert group["betas"] == BETAS
    assert group["betas"] == BETAS
    group["betas"] = (0.5, 0.5)
    state.close()
    assert group["betas"] == (0.5, 0.5) == optimizer.state_dict()["param_groups"][0]["betas"]


def test_auto_needs_the_module_and_the_optimizer(comm: Communicator) -> None:
    with pytest.raises(ValueError, match="give DDPState module=model, optimizer=optimizer"):
        DDPState(comm, "auto", module=net())


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_adacomp_before_a_first_moment_is_told_once(
    comm: Communicator, caplog: pytest.LogCaptureFixture, momentum: float
) -> None:
    """Of the hook and the backend; not with SGD, not where the moment is taken over, nor of what is used no more."""
    CompressedSums(AdaComp(), 0)  # not kept
    model = DistributedDataParallel(net())
    compressor = AdaComp(momentum=momentum)
    with caplog.at_level(logging.WARNING, "p4reduce.pytorch.recommend"), DDPState(comm, compressor) as state:
        model.register_comm_hook(state, ddp_hook)
        train(model, torch.optim.SGD(model.parameters(), momentum=0.9), 1)
        assert not caplog.messages
        train(model, adamw(model), 2)
        assert ["the first moment of AdamW" in message for message in caplog.messages] == [True]
        caplog.clear()
        sums = CompressedSums(AdaComp(), 0)
        train(model, adamw(model), 2)
        assert len(caplog.messages) == 1
        del sums
    caplog.clear()
    model = DistributedDataParallel(net())
    optimizer = adamw(model)
    with caplog.at_level(logging.WARNING), DDPState(comm, "auto", module=model, optimizer=optimizer) as state:
        model.register_comm_hook(state, ddp_hook)
        train(model, optimizer, 2)
    assert not caplog.messages
