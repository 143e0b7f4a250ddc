"""The DDP hook with a compressor on one rank: reports, names, settings, parameters that come late or never."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from p4reduce.communicator import Communicator
from p4reduce.compressors import AdaComp, OmniReduce, Policy
from p4reduce.pytorch import checkpoint
from p4reduce.pytorch.ddp import DDPState, ddp_hook
from p4reduce.testing.local_group import LocalGroup
from rigs.buckets import Bucket

pytestmark = pytest.mark.usefixtures("process_group")


class Net(nn.Module):
    """Two layers, and one that takes part in some steps only."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.fc1 = nn.Linear(20, 40)
        self.fc2 = nn.Linear(40, 10)
        self.extra = nn.Linear(40, 10)

    def forward(self, x: torch.Tensor, extra: bool) -> torch.Tensor:
        hidden = self.fc1(x).relu()
        result: torch.Tensor = self.fc2(hidden) + self.extra(hidden) if extra else self.fc2(hidden)
        return result


def step(model: nn.Module, seed: int, extra: bool = True) -> dict[str, torch.Tensor]:
    """The gradients of a step."""
    model.zero_grad()
    x = torch.randn(8, 20, generator=torch.Generator().manual_seed(seed))
    model(x, extra).square().mean().backward()
    return {name: p.grad.clone() for name, p in model.module.named_parameters() if p.grad is not None}


def wrapped(**options: bool | float) -> DistributedDataParallel:
    return DistributedDataParallel(Net(), **options)


def test_the_policy_reads_the_modules_layers(comm: Communicator) -> None:
    model = wrapped()
    policy = Policy(names=[("extra.*", "dense")], first_layer="dense")
    with DDPState(comm, AdaComp(policy), module=model) as state:
        model.register_comm_hook(state, ddp_hook)
        step(model, 0)
        assert [set(report.forms) for report in state.reports] == [{"fc2.weight"}]


@pytest.mark.parametrize(("form", "late"), [("gather", 0), ("shared", 0), ("sum", 1), ("auto", 0)])
def test_a_layer_that_appears_late_and_is_sometimes_unused(comm: Communicator, form: str, late: int) -> None:
    """Its gradients are None, and its residue waits. In the form sum its first gradient, for which the scale of the
    steps without any is 0, travels with the second."""
    compressor = AdaComp(form=form)
    model = wrapped(find_unused_parameters=True)
    with DDPState(comm, compressor, module=model) as state:
        model.register_comm_hook(state, ddp_hook)
        for seed in range(3):
            assert "extra.weight" not in step(model, seed, extra=False)
        residue = compressor.residue("extra.weight")
        assert residue is None or not residue.any()
        assert bool(step(model, 3)["extra.weight"].any()) == (late == 0)
        assert step(model, 3)["extra.weight"].any()
        kept = compressor.residue("extra.weight")
        assert kept is not None and kept.any()
        kept = kept.clone()
        step(model, 4, extra=False)
        after = compressor.residue("extra.weight")
        assert after is not None and torch.equal(after, kept)
        assert step(model, 5)["extra.weight"].any()


def test_momentum_takes_gradients_accumulated_in_no_sync_as_one_and_none_of_a_layer_without(comm: Communicator) -> None:
    compressor = AdaComp(momentum=0.9)
    model = wrapped(find_unused_parameters=True)
    given = []
    model.module.fc2.bias.register_hook(lambda gradient: given.append(gradient.clone()))
    with DDPState(comm, compressor, module=model) as state:
        model.register_comm_hook(state, ddp_hook)
        with model.no_sync():
            model(torch.ones(8, 20), False).square().mean().backward()
        assert compressor.state_dict()["velocities"] == {}
        model(torch.ones(4, 20), False).square().mean().backward()
    velocities = compressor.state_dict()["velocities"]
    assert set(velocities) == {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"}
    torch.testing.assert_close(velocities["fc2.bias"], 0.1 * (given[0] + given[1]))


def test_velocities_for_another_number_of_ranks_keep_their_mean() -> None:
    """Rank 1 has no gradient of the second parameter, and so no velocity."""
    names = ("first", "second")
    module = nn.ParameterDict({name: nn.Parameter(torch.zeros(3, 4)) for name in names})

    def velocities_of(state: DDPState) -> torch.Tensor:
        found = state.state_dict()["compressor"]["velocities"]
        return torch.stack([found.get(name, torch.zeros(12)) for name in names])

    def save(comm: Communicator) -> tuple[Any, torch.Tensor]:
        with DDPState(comm, AdaComp(form="gather", momentum=0.9), module=module) as state:
            for index, parameter in enumerate(module.values()):
                given = torch.full((3, 4), float(1 + comm.rank) * (1 - index * comm.rank))
                given[0, 0] *= 10
                state.reduce(Bucket(index, parameter, given, last=index == 1)).wait()  # type: ignore[arg-type]
            return checkpoint.part(state)[f"rank{comm.rank}"], velocities_of(state)

    def load(comm: Communicator) -> torch.Tensor:
        with DDPState(comm, AdaComp(form="gather", momentum=0.9), module=module) as state:
            checkpoint.load_gathered(state, parts)
            return velocities_of(state)

    with LocalGroup(2) as group:
        parts, saved = zip(*group.run(save), strict=True)
    assert [set(part["velocities"]) for part in parts] == [{"first", "second"}, {"first"}]
    assert not torch.equal(*saved)
    for ranks in (1, 2, 3):
        with LocalGroup(ranks) as group:
            loaded = group.run(load)
        torch.testing.assert_close(torch.stack(loaded).mean(0), torch.stack(saved).mean(0))
        if ranks == 2:
            assert all(torch.equal(one, other) for one, other in zip(loaded, saved, strict=True))


def test_the_ratio_to_the_weights_needs_the_module(comm: Communicator) -> None:
    with pytest.raises(ValueError, match="top-k-ratio compares gradients with weights: give DDPState module=m"):
        DDPState(comm, OmniReduce("top-k-ratio"))
    assert comm.stats.frames_up == 0


@pytest.mark.parametrize("policy", [Policy(names=[("fc1.*", "dense")]), Policy(first_layer="dense")])
def test_a_policy_of_names_or_of_the_first_layer_needs_the_module(comm: Communicator, policy: Policy) -> None:
    with pytest.raises(ValueError, match="policy names parameters or the first layer: give DDPState module=model"):
        DDPState(comm, AdaComp(policy))
    DDPState(comm, AdaComp(policy), module=wrapped()).close()
