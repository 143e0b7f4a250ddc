"""A compressor where ranks share hosts: a host is a learner, and each rank that sends has a part of every parameter."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp

from p4reduce.collectives import Contribution
from p4reduce.communicator import Communicator
from p4reduce.compressors import AdaComp, Compressor, NoCompression
from p4reduce.compressors.all_reduce import all_reduce_compressed
from p4reduce.errors import (
    CollectiveError,
    CollectiveMismatchError,
    CollectiveTimeoutError,
    InvalidTensorError,
    NotFiniteError,
    PeerRefusedError,
)
from p4reduce.paths.hosts.plan import HostPlan, elements_of, make_plan
from p4reduce.paths.hosts.sums import HostSums
from p4reduce.paths.path import FinishedCollective, Lost
from p4reduce.paths.switch import SwitchPath
from p4reduce.protocol.deadline import Deadline
from p4reduce.pytorch import checkpoint
from p4reduce.pytorch.ddp import DDPState
from p4reduce.testing.in_process import exchange_all, groups
from p4reduce.testing.local_group import LocalGroup
from rigs.buckets import model_of, reduce_all
from rigs.host_group import HostGroup
from rigs.limits import LIMIT_S
from rigs.ranks import MAKERS, equal, gradients_of, make, odd

TWO_OF_TWO = [0, 0, 1, 1]
PLACEMENTS = (TWO_OF_TWO, [0, 1, 0, 1], [0, 0, 0, 0], [0, 1, 1, 1], [0, 0, 0, 1, 1])
STEPS = 3
SHAPES = {"large": (90, 100), "small": (10, 20), "bias": (1500,)}
"""The shards of two ranks: 5000 and 4000 elements, none and 200, 1000 and 500."""


def plan_of(placement: Sequence[int]) -> HostPlan:
    plan = make_plan([str(host) for host in placement])
    assert plan is not None
    return plan


def parts_by_definition(
    plan: HostPlan, given: Sequence[dict[str, torch.Tensor]], shard: int
) -> list[dict[str, torch.Tensor]]:
    """Return each host's part of the gradients, in numpy: the sum of its ranks', times hosts / ranks."""
    factor, found = np.float32(len(plan.hosts) / len(given)), []
    for ranks in plan.hosts:
        parts = {}
        for key, tensor in given[0].items():
            begin, end = elements_of(shard, plan.shards, tensor.numel())
            total = np.zeros(end - begin, np.float32)
            for rank in ranks:
                total = total + given[rank][key].reshape(-1).numpy()[begin:end]
            if begin < end:
                parts[key] = torch.from_numpy(total * factor).view(-1, *[1] * (tensor.dim() - 1))
        found.append(parts)
    return found


@pytest.mark.parametrize("placement", PLACEMENTS, ids=str)
def test_dense_means_are_those_of_all_ranks(monkeypatch: pytest.MonkeyPatch, placement: Sequence[int]) -> None:
    given = [odd(rank, 2) for rank in range(len(placement))]

    def run(comm: Communicator) -> Any:
        half = {key: tensor.half() for key, tensor in given[comm.rank].items()}
        compressor = NoCompression()
        return [all_reduce_compressed(comm, compressor, mine)[0].means for mine in (given[comm.rank], half)]

    with HostGroup(monkeypatch, placement) as group:
        found = group.run(run)
        assert all(group.hosts_of(comm).plan == plan_of(placement) for comm in group.comms)
    for key, tensor in given[0].items():
        expected = np.mean([mine[key].numpy().astype(np.float64) for mine in given], axis=0)
        for dtype, which, error in ((torch.float32, 0, 1e-6), (torch.float16, 1, 2e-3)):
            mean = found[0][which][key]
            assert mean.dtype == dtype and mean.shape == tensor.shape
            assert all(torch.equal(mean, of_rank[which][key]) for of_rank in found)
            np.testing.assert_allclose(mean.numpy(), expected, rtol=error, atol=error)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("placement", [[0, 0, 0, 0], [0, 0, 0, 1, 1]], ids=str)
def test_hosts_exchange_what_as_many_ranks_would(
    monkeypatch: pytest.MonkeyPatch, placement: Sequence[int], name: str
) -> None:
    """The means and the residues, which only the ranks of a part have, are the same bit for bit."""
    plan, ranks = plan_of(placement), len(placement)
    compressors = [make(name) for _ in placement]

    def run(comm: Communicator) -> list[dict[str, torch.Tensor]]:
        compressor = compressors[comm.rank]
        return [all_reduce_compressed(comm, compressor, odd(comm.rank, step))[0].means for step in range(STEPS)]

    with HostGroup(monkeypatch, placement) as group:
        means = group.run(run)
    for shard in range(plan.shards):
        learners = [make(name) for _ in plan.hosts]
        begins = {key: elements_of(shard, plan.shards, tensor.numel()) for key, tensor in odd(0, 0).items()}
        for one in learners:  # those of "omnireduce, ratio" look at the part's weights
            weights = getattr(one, "_weights", {})
            weights.update({key: weights[key].reshape(-1)[slice(*begins[key])] for key in weights})
        for step in range(STEPS):
            parts = parts_by_definition(plan, [odd(rank, step) for rank in range(ranks)], shard)
            outcome = exchange_all(learners, parts, groups(len(plan.hosts)))[0]
            for key, mean in outcome.means.items():
                found = means[0][step][key].reshape(-1)[slice(*begins[key])]
                assert torch.equal(found, mean.reshape(-1)), (key, step)
        for host, one in enumerate(learners):
            own = compressors[plan.hosts[host][shard]]
            assert all(equal(vars(own.state_of(key)), vars(one.state_of(key))) for key in outcome.means)
    for one, of_rank in zip(compressors, means, strict=True):
        assert all(equal(of_rank[step], means[0][step]) for step in range(STEPS))
        assert set(one.state_dict()["steps"].values()) == {STEPS}
    idle = set(range(ranks)) - {rank for members in plan.hosts for rank in members[: plan.shards]}
    assert all(not compressors[rank].state_dict()["residues"] for rank in idle)


def step_of(comm: Communicator, compressor: Compressor, step: int) -> dict[str, torch.Tensor]:
    given = gradients_of(comm.rank, step, {"w": (400, 500)})
    return all_reduce_compressed(comm, compressor, given)[0].means


def test_residues_take_a_part_of_the_memory_and_fewer_bytes_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(comm: Communicator) -> tuple[int, int]:
        compressor = AdaComp()
        step_of(comm, compressor, 0)
        before = comm.stats.copy()
        for step in (1, 2):
            step_of(comm, compressor, step)
        spent = comm.stats - before
        residue = compressor.residue("w")
        assert residue is not None
        return residue.numel(), spent.bytes_up + spent.bytes_down

    with LocalGroup(4) as alone:
        elements, bytes_alone = zip(*alone.run(run), strict=True)
    with HostGroup(monkeypatch, TWO_OF_TWO) as group:
        parts, bytes_over_hosts = zip(*group.run(run), strict=True)
    assert set(elements) == {200_000} and set(parts) == {100_000}
    assert sum(bytes_over_hosts) <= 0.6 * sum(bytes_alone)


@pytest.mark.fault("a rank of a host cannot take part in a compressed step: all ranks refuse it, and none has changed")
@pytest.mark.parametrize(("ranks", "at", "number", "by"), [([1], 0, torch.nan, 1), ([2, 3], -1, 3e38, 3)])
def test_a_refusal_is_on_all_hosts_names_the_rank_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, ranks: list[int], at: int, number: float, by: int
) -> None:
    """A NaN on rank 1, or a sum beyond float32 over the host of ranks 2 and 3, in the part that rank 3 sends."""

    def run(comm: Communicator) -> tuple[str, bool]:
        compressor, given = AdaComp(), gradients_of(comm.rank, 0, SHAPES)
        all_reduce_compressed(comm, compressor, given)
        before, bad = compressor.state_dict(), given["large"].clone()
        if comm.rank in ranks:
            bad.view(-1)[at] = number
        with pytest.raises((NotFiniteError, PeerRefusedError)) as caught:
            all_reduce_compressed(comm, compressor, given | {"large": bad})
        unchanged = equal(compressor.state_dict(), before)
        all_reduce_compressed(comm, compressor, given)
        return str(caught.value), unchanged

    with HostGroup(monkeypatch, TWO_OF_TWO) as group:
        texts, unchanged = zip(*group.run(run), strict=True)
    assert all(unchanged) and "the gradient of large holds a NaN or an infinity" in texts[by]
    assert all(f"(rank {by}: a NaN or an infinity)" in text for rank, text in enumerate(texts) if rank != by)


def errors_of(group: HostGroup, last: Callable[[Communicator, Compressor], object]) -> list[Any]:
    """Return what each rank raises in `last`, after a step."""

    def run(comm: Communicator) -> CollectiveError:
        compressor = AdaComp(form="sum")
        step_of(comm, compressor, 0)
        comm.barrier()
        with pytest.raises(CollectiveError) as caught:
            last(comm, compressor)
        comm.close(wait=False)
        return caught.value

    return group.run(run)


@pytest.mark.fault("a rank of another host stops in a compressed step: the error names its rank of the job")
def test_a_timeout_between_hosts_names_the_rank_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    original = SwitchPath.run
    released = threading.Event()

    def run(self: SwitchPath, contribution: Contribution, deadline: Deadline, lost: Lost) -> FinishedCollective:
        if self is connections.get(3):
            assert released.wait(LIMIT_S)
            raise CollectiveError("stopped")
        if self is connections.get(1):
            deadline = Deadline(self.clock() + 0.2, deadline.limit_s)
        return original(self, contribution, deadline, lost)

    connections: dict[int, Any] = {}
    monkeypatch.setattr(SwitchPath, "run", run)

    def last(comm: Communicator, compressor: Compressor) -> None:
        path = group.sums_of(comm).shard_path
        connections[comm.rank] = path and path.over_switch
        comm.barrier()
        try:
            step_of(comm, compressor, 1)
        finally:
            if comm.rank == 1:
                released.set()

    with HostGroup(monkeypatch, TWO_OF_TWO) as group:
        errors = errors_of(group, last)
    assert isinstance(errors[1], CollectiveTimeoutError) and errors[1].missing_ranks == (3,)
    assert "the switch still waits for rank 3" in str(errors[1])
    assert "rank 1 of this host failed in it" in str(errors[0])
    assert "rank 3 of this host failed in it" in str(errors[2])


@pytest.mark.parametrize("differs", ["settings", "scale"])
def test_ranks_at_odds_are_named(monkeypatch: pytest.MonkeyPatch, differs: str) -> None:
    """All ranks compare settings and steps, those of a part the scale too."""

    def last(comm: Communicator, compressor: Compressor) -> None:
        if comm.rank == 3 and differs == "settings":
            compressor = AdaComp(form="sum", momentum=0.5)
        elif comm.rank == 3:
            state = compressor.state_dict()
            compressor.load_state_dict(state | {"scales": {"w": 7.0}})
        step_of(comm, compressor, 1)

    with HostGroup(monkeypatch, TWO_OF_TWO) as group:
        errors = errors_of(group, last)
    others = [0, 1, 2] if differs == "settings" else [1]
    assert all(isinstance(errors[rank], CollectiveMismatchError) for rank in (*others, 3))
    assert set(errors[3].calls) == {*others, 3}


def train(state: DDPState, step: int) -> list[torch.Tensor]:
    """Return the means of a step with a bucket for each parameter."""
    given = gradients_of(state.comm.rank, step, SHAPES)
    return reduce_all(state, state._names, [given[name] for name in state._names.values()])


PLACED = ([0, 0, 1, 1], [0, 0, 0, 0], [0, 1, 2, 3], [0, 1, 1, 1], [0, 0, 0, 1, 1, 1])
"""2x2, 1x4, 4x1, an uneven one, and one of other ranks."""


def owed(parts: Sequence[Any], placement: Sequence[int], kind: str) -> dict[str, torch.Tensor]:
    """Return of each parameter what all learners keep: of residues the sum over the ranks, of velocities the mean."""
    hosts = [[rank for rank, at in enumerate(placement) if at == host] for host in dict.fromkeys(placement)]
    shards = min(map(len, hosts))
    learners = [[parts[rank][kind] for rank in ranks[:shards]] for ranks in hosts]
    unit = (len(placement) if kind == "residues" else 1) / len(hosts)
    keys = {key for own in learners for part in own for key in part}
    whole = {key: [torch.cat([part[key] for part in own if key in part]) for own in learners] for key in keys}
    return {key: unit * torch.stack(tensors).sum(0) for key, tensors in whole.items()}


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")  # one process has all ranks
@pytest.mark.parametrize("before", PLACED[:3], ids=str)
def test_checkpoints_load_on_other_hosts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, before: Sequence[int]
) -> None:
    """The sum of all residues stays the same; on the same hosts training goes on with the same bits."""

    def run(comm: Communicator, source: Any, steps: range) -> tuple[Any, Any, Any]:
        with DDPState(comm, AdaComp(momentum=0.5), module=model_of(SHAPES)) as state:
            if source == tmp_path:
                checkpoint.load(state, tmp_path)
            elif source is not None:
                checkpoint.load_gathered(state, source)
            loaded = checkpoint.part(state)[f"rank{comm.rank}"]
            means = [train(state, step) for step in steps]
            return loaded, means, checkpoint.part(state)[f"rank{comm.rank}"]

    with HostGroup(monkeypatch, before) as group:
        saved = [part for _, _, part in group.run(lambda comm: run(comm, None, range(3)))]
    with HostGroup(monkeypatch, before) as group:
        _, uninterrupted, _ = group.run(lambda comm: run(comm, None, range(5)))[0]
    dcp.save({"hook": {f"rank{rank}": part for rank, part in enumerate(saved)}}, checkpoint_id=tmp_path)
    for after in PLACED:
        source = tmp_path if len(set(after)) == 2 else saved
        with HostGroup(monkeypatch, after) as group:
            loaded, means, _ = zip(*group.run(lambda comm, source=source: run(comm, source, range(3, 5))), strict=True)
        for kind in ("residues", "velocities"):
            kept = owed(saved, before, kind)
            assert all(tensor.abs().max() > 0.01 for tensor in kept.values())
            torch.testing.assert_close(owed(loaded, after, kind), kept)
        if after == before:
            assert all(equal(one, other) for one, other in zip(means[0], uninterrupted[3:], strict=True))


def test_a_bucket_beyond_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostSums, "most_elements", 10)

    def run(comm: Communicator) -> None:
        with pytest.raises(InvalidTensorError, match="set P4REDUCE_HOSTS=off on all ranks"):
            step_of(comm, AdaComp(), 0)

    with HostGroup(monkeypatch, [0, 0]) as group:
        group.run(run)
