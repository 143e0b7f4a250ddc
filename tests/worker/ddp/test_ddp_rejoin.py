"""The DDP hook on a job that is reset, on one rank, and its options. More ranks: system/test_system_elastic.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from p4reduce.communicator import Communicator
from p4reduce.compressors import AdaComp
from p4reduce.pytorch.ddp import DDPState, ddp_hook
from p4reduce.testing.resettable_group import ResettableGroup

pytestmark = pytest.mark.usefixtures("process_group")


@pytest.fixture
def group() -> Iterator[ResettableGroup]:
    with ResettableGroup(1) as group:
        yield group


def train(group: ResettableGroup, reset_at: set[int]) -> dict[str, torch.Tensor]:
    """The weights after six steps of two buckets; the job is reset before some of them, and in the middle of one."""
    torch.manual_seed(3)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 4)), bucket_cap_mb=0.0005)
    compressor = AdaComp(momentum=0.5)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9)
    with DDPState(group.comms[0], compressor, module=model) as state:
        model.register_comm_hook(state, ddp_hook)
        for step in range(6):
            if step in reset_at:
                group.reset()
            optimizer.zero_grad()
            model(torch.randn(8, 20, generator=torch.Generator().manual_seed(step))).square().mean().backward()
            optimizer.step()
    kept = compressor.state_dict()
    residues = {
        f"{kind} of {key}": kept[kind][key] for kind in ("residues", "velocities") for key in ("0.weight", "2.weight")
    }
    return {**model.module.state_dict(), **residues}


def test_weights_and_residues_are_those_of_an_undisturbed_run(group: ResettableGroup) -> None:
    with ResettableGroup(1) as undisturbed:
        wanted = train(undisturbed, set())
    found = train(group, {2, 4})
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[key], wanted[key]) for key in wanted)


@pytest.mark.fault(
    '`on_nonfinite="skip"` on some ranks only: ValueError on every rank when the DDPState is constructed, with each '
    "rank's options"
)
def test_options_that_differ_are_an_error_on_every_rank() -> None:
    def make(comm: Communicator) -> str:
        with pytest.raises(ValueError) as caught:
            DDPState(comm, on_nonfinite="skip" if comm.rank == 1 else "raise")
        comm.barrier()
        return str(caught.value)

    told = "DDPState's on_nonfinite is 'raise' on ranks 0, 2 and 'skip' on rank 1: give all ranks the same"
    with ResettableGroup(3) as three:
        assert three.run(make) == [told] * 3
