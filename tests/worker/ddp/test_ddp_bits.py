"""Buckets in 16 and 8 bits with error feedback; buckets of bfloat16 and float16, also compressed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from p4reduce.communicator import Communicator
from p4reduce.compressors import AdaComp, Policy, Quantize
from p4reduce.pytorch import checkpoint
from p4reduce.pytorch.ddp import DDPState, ddp_hook
from p4reduce.testing.local_group import LocalGroup
from rigs.buckets import Bucket

RANKS, STEPS = 4, 12
NAMES = ("first", "second")


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for name in NAMES:
            self.register_parameter(name, torch.nn.Parameter(torch.zeros(30, 21)))


def gradients(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return [ranks, steps, buckets, 30, 21]."""
    made = torch.randn(RANKS, STEPS, len(NAMES), 30, 21, generator=torch.Generator().manual_seed(1))
    return made.to(dtype)


def means_of(
    comm: Communicator, given: torch.Tensor, **options: Any
) -> tuple[torch.Tensor, dict[str, torch.Tensor] | None]:
    """Return the mean of each step and bucket, and the residues at the end."""
    model = Model()
    with DDPState(comm, module=model, **options) as state:
        means = steps_of(state, model, given[comm.rank])
        return means, None if state.compressor is None else state.compressor.state_dict()["residues"]


def steps_of(state: DDPState, model: Model, given: torch.Tensor) -> torch.Tensor:
    """Return the mean of each step and bucket; `given` is one rank's."""
    means = []
    for step in given.clone():
        futures = [
            state.reduce(Bucket(index, parameter, step[index], last=index == len(NAMES) - 1))  # type: ignore[arg-type]
            for index, parameter in enumerate(model.parameters())
        ]
        means.append(torch.stack([future.wait().clone() for future in futures]))
    return torch.stack(means).view(given.shape)


@pytest.mark.parametrize("number", [16, 8])
def test_means_in_few_bits_are_close_and_equal_on_all_ranks(number: int) -> None:
    given = gradients()[:, :1]
    with LocalGroup(RANKS) as group:
        found = [mean for mean, _ in group.run(lambda comm: means_of(comm, given, compressor=Quantize(number)))]
    assert all(torch.equal(mean, found[0]) for mean in found)
    unit = 2.0 ** (3 - (number - 4))  # |x| < 8, and L = 2
    off = (found[0] - given.mean(0)).abs()
    assert 0 < off.max() <= unit


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_with_error_feedback_sums_and_residues_add_up_to_the_gradients(dtype: torch.dtype) -> None:
    given = gradients(dtype)
    with LocalGroup(RANKS) as group:
        found = group.run(lambda comm: means_of(comm, given, compressor=Quantize(8)))
    assert all(means.dtype == dtype and torch.equal(means, found[0][0]) for means, _ in found)
    sent = RANKS * found[0][0].double().sum(0)
    kept = [torch.stack([residues[name].view(30, 21) for name in NAMES]) for _, residues in found if residues]
    assert len(kept) == RANKS and max(residue.abs().max() for residue in kept) > 0.01
    assert all(residue.dtype == torch.float32 for residue in kept)
    rounded = (
        0.0 if dtype == torch.float32 else RANKS * STEPS * torch.finfo(dtype).eps
    )  # of means below 4, half of 2 eps
    wanted = given.double().sum((0, 1))
    torch.testing.assert_close(sent + torch.stack(kept).double().sum(0), wanted, rtol=0, atol=1e-4 + rounded)


def test_a_skipped_step_leaves_the_residues() -> None:
    given = gradients()
    given[2, 5, 1, 3, 3] = torch.inf

    def rank_main(comm: Communicator) -> Any:
        before = means_of(comm, given[:, :5], compressor=Quantize(8))[1]
        after = means_of(comm, given[:, :6], compressor=Quantize(8), on_nonfinite="skip")
        assert after[0][5, 0].isfinite().all() and after[0][5, 1].isnan().all()
        assert before is not None and after[1] is not None
        return all(torch.equal(before[name], after[1][name]) for name in NAMES)

    with LocalGroup(RANKS) as group:
        assert all(group.run(rank_main))


def test_residues_are_in_checkpoints() -> None:
    given = gradients()
    whole = 8

    def part_after(comm: Communicator, steps: int) -> Any:
        model = Model()
        with DDPState(comm, module=model, compressor=Quantize(8)) as state:
            steps_of(state, model, given[comm.rank, :steps])
            return checkpoint.part(state)[f"rank{comm.rank}"]

    with LocalGroup(RANKS) as group:
        parts = group.run(lambda comm: part_after(comm, 5))
        uninterrupted = group.run(lambda comm: part_after(comm, whole))
    total = {name: torch.stack([part["residues"][name] for part in parts]).sum(0) for name in NAMES}
    assert all(residue.abs().max() > 0.01 for residue in total.values())

    def resumed(comm: Communicator) -> Any:
        model = Model()
        with DDPState(comm, module=model, compressor=Quantize(8)) as state:
            checkpoint.load_gathered(state, parts)
            loaded = checkpoint.part(state)[f"rank{comm.rank}"]["residues"]
            if comm.world_size == RANKS:
                steps_of(state, model, given[comm.rank, 5:whole])
            return loaded, checkpoint.part(state)[f"rank{comm.rank}"]["residues"]

    for ranks in (RANKS, 3, 6):
        with LocalGroup(ranks) as group:
            found = group.run(resumed)
        for name in NAMES:
            torch.testing.assert_close(torch.stack([loaded[name] for loaded, _ in found]).sum(0), total[name])
        if ranks == RANKS:
            for (_, after), wanted in zip(found, uninterrupted, strict=True):
                assert all(torch.equal(after[name], wanted["residues"][name]) for name in NAMES)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_of_16_bits_are_summed(dtype: torch.dtype) -> None:
    given = gradients(dtype)
    with LocalGroup(RANKS) as group:
        found = [mean for mean, _ in group.run(lambda comm: means_of(comm, given))]
    assert all(torch.equal(mean, found[0]) for mean in found)
    assert found[0].dtype == dtype
    torch.testing.assert_close(found[0].float(), given.float().mean(0), rtol=2.0**-7, atol=2.0**-7)


@pytest.mark.usefixtures("process_group")
def test_a_bfloat16_model_under_ddp(comm: Communicator) -> None:
    torch.manual_seed(1)
    plain = torch.nn.Linear(20, 30).bfloat16()
    model = DistributedDataParallel(torch.nn.Linear(20, 30).bfloat16())
    model.module.load_state_dict(plain.state_dict())
    with DDPState(comm, module=model) as state:
        model.register_comm_hook(state, ddp_hook)
        for module in (plain, model):
            module(torch.ones(4, 20, dtype=torch.bfloat16)).square().mean().backward()
    for mine, wanted in zip(model.module.parameters(), plain.parameters(), strict=True):
        assert mine.grad is not None and wanted.grad is not None
        torch.testing.assert_close(mine.grad, wanted.grad)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_of_16_bits_stay_equal_on_all_ranks(dtype: torch.dtype) -> None:
    given = 0.01 * gradients(dtype)

    def rank_main(comm: Communicator) -> list[torch.Tensor]:
        model = Model().to(dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        with DDPState(comm, AdaComp(Policy(linear=50)), module=model) as state:
            for step in given[comm.rank]:
                means = steps_of(state, model, step[None])[0]
                for parameter, mean in zip(model.parameters(), means, strict=True):
                    parameter.grad = mean.clone()
                optimizer.step()
        return [parameter.detach() for parameter in model.parameters()]

    with LocalGroup(RANKS) as group:
        first, *others = group.run(rank_main)
    assert all(weights.any() for weights in first)
    for weights in others:
        assert all(torch.equal(mine, wanted) for mine, wanted in zip(weights, first, strict=True))
