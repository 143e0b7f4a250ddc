"""The DDP hook that falls back on gloo, on one rank. More ranks: tests/system/test_system_rejoin.py."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from p4reduce.communicator import Communicator
from p4reduce.compressors import AdaComp
from p4reduce.pytorch import ddp
from p4reduce.pytorch.ddp import DDPState, ddp_hook
from p4reduce.pytorch.fallback import Fallback
from p4reduce.testing.local_group import LocalGroup
from p4reduce.testing.resettable_group import ResettableGroup

pytestmark = pytest.mark.usefixtures("process_group")


@pytest.fixture
def group() -> Iterator[ResettableGroup]:
    with ResettableGroup(1) as group:
        yield group


def train(group: ResettableGroup, fallback: Any, reset_at: set[int]) -> dict[str, torch.Tensor]:
    """The weights after six steps of two buckets; the job is reset before some of them, and in the middle of one."""
    torch.manual_seed(3)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 4)), bucket_cap_mb=0.0005)
    compressor = AdaComp(momentum=0.5)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9)
    with DDPState(group.comms[0], compressor, module=model, fallback=fallback) as state:
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


@pytest.mark.parametrize(("fallback", "away"), [(None, False), ("gloo", False), ("gloo", True)])
def test_weights_and_residues_are_those_of_an_undisturbed_run(
    group: ResettableGroup, fallback: Any, away: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ResettableGroup(1) as undisturbed:
        wanted = train(undisturbed, fallback, set())
    if away:
        monkeypatch.setattr(ResettableGroup, "join_epoch", lambda self, rank, timeout_s: time.sleep(3600))
    found = train(group, fallback, {2} if away else {2, 4})
    recovery = group.comms[0].recovery
    if away:
        assert isinstance(recovery, Fallback) and recovery.collectives >= 8, "all buckets from step 2 on"
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[key], wanted[key]) for key in wanted)


def test_two_models_share_the_fallback_of_a_communicator(group: ResettableGroup) -> None:
    DDPState(group.comms[0], fallback="gloo").close()
    first = group.comms[0].recovery
    with DDPState(group.comms[0], fallback="gloo"):
        assert group.comms[0].recovery is first


def test_a_communicator_without_rejoin_cannot_fall_back(group: ResettableGroup) -> None:
    wrong: Any = "nccl"
    with pytest.raises(ValueError, match="fallback is 'nccl'"):
        DDPState(group.comms[0], fallback=wrong)
    with LocalGroup(1) as plain, pytest.raises(ValueError, match=r"join\(rejoin=True\)"):
        DDPState(plain.comms[0], fallback="gloo")
    with ResettableGroup(2) as two, pytest.raises(ValueError, match="rank 1 of 2 in the job, and rank 0 of 1 in the"):
        DDPState(two.comms[1], fallback="gloo")


@pytest.mark.fault(
    '`fallback="gloo"`, or `on_nonfinite="skip"`, on some ranks only: ValueError on every rank when the '
    "DDPState is constructed, with each rank's options"
)
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            [{"fallback": "gloo"}, {}, {}],
            "DDPState's fallback is None on ranks 1, 2 and 'gloo' on rank 0: give all ranks the same",
        ),
        (
            [{}, {"on_nonfinite": "skip"}, {}],
            "DDPState's on_nonfinite is 'raise' on ranks 0, 2 and 'skip' on rank 1: give all ranks the same",
        ),
    ],
)
def test_options_that_differ_are_an_error_on_every_rank(
    options: list[dict[str, Any]], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ddp, "check_fallback", lambda comm, peers: None)  # the process group here has one rank

    def make(comm: Communicator) -> str:
        with pytest.raises(ValueError) as caught:
            DDPState(comm, **options[comm.rank])
        comm.barrier()
        return str(caught.value)

    with ResettableGroup(3) as three:
        assert three.run(make) == [told] * 3
