"""Buckets in 16 and 8 bits with error feedback; buckets of bfloat16 and float16, also compressed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from p4reduce.communicator import Communicator
from p4reduce.compressors import Quantize
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
