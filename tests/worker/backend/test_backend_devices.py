"""Tensors on a device in the backend's collectives: two ranks in this process, with a simulated accelerator."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from p4reduce.pytorch import staging
from p4reduce.pytorch.backend.group import ProcessGroupP4Reduce
from rigs.simulated_accelerator import Schedule, SimulatedAccelerator

RANKS = 2
SCHEDULES: list[Schedule] = ["lazy", "eager", 1, 2]

Rank = Callable[[ProcessGroupP4Reduce, Any], Any]


@pytest.fixture(params=SCHEDULES)
def accelerator(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SimulatedAccelerator:
    made = SimulatedAccelerator(request.param)
    monkeypatch.setitem(staging.ACCELERATORS, "meta", lambda: made)
    return made


def numbers(rank: int, dtype: torch.dtype = torch.float32, shape: tuple[int, ...] = (6, 5)) -> torch.Tensor:
    return torch.randint(-9, 9, shape, generator=torch.Generator().manual_seed(rank)).to(dtype)


def every_collective(group: ProcessGroupP4Reduce, device: Any) -> list[torch.Tensor]:
    """Return all results: by wait(), by futures, and of calls that overlap."""
    rank = group.rank()
    found = []
    for dtype in (torch.float32, torch.bfloat16, torch.int32):
        mine = device.tensor(numbers(rank, dtype))
        assert group.allreduce([mine]).wait()
        found.append(device.read(mine))
    average = dist.AllreduceOptions()
    average.reduceOp = dist.ReduceOp.AVG
    mine = device.tensor(numbers(rank))
    (mean,) = group.allreduce([mine], average).get_future().wait()
    found.append(device.read(mean))
    mine = device.tensor(torch.full((6, 5), torch.inf))
    group.allreduce([mine]).wait()
    found.append(device.read(mine))
    pair = [device.tensor(numbers(rank + each)) for each in range(2)]
    group.allreduce_coalesced(pair).wait()
    found += [device.read(each) for each in pair]
    part, row = device.tensor(torch.zeros(3, 5)), device.tensor(torch.zeros(3, 5))
    group._reduce_scatter_base(part, device.tensor(numbers(rank))).wait()
    group.reduce_scatter([row], [[device.tensor(half.contiguous()) for half in numbers(rank).split(3)]]).wait()
    found += [device.read(part), device.read(row)]
    copied = device.tensor(numbers(rank))
    group.broadcast([copied], root=1).wait()
    found.append(device.read(copied))
    several = [device.tensor(numbers(rank + each)) for each in range(5)]
    for work in [group.allreduce([each]) for each in several]:
        work.wait()
    return found + [device.read(each) for each in several]


class Host:
    """The CPU, with the methods of the simulated accelerator that the test calls."""

    def tensor(self, values: torch.Tensor) -> torch.Tensor:
        return values.clone()

    def read(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.clone()


def test_results_on_a_device_are_those_on_the_host(
    ranks: Callable[[Rank, Any], list[Any]], accelerator: SimulatedAccelerator
) -> None:
    wanted, found = ranks(every_collective, Host()), ranks(every_collective, accelerator)
    total = sum(numbers(rank) for rank in range(RANKS))
    for rank in range(RANKS):
        assert torch.equal(wanted[rank][0], total)
        assert len(found[rank]) == len(wanted[rank])
        for number, (mine, other) in enumerate(zip(found[rank], wanted[rank], strict=True)):
            assert mine.dtype == other.dtype and torch.equal(mine, other), f"result {number} of rank {rank}"


def test_a_work_that_failed_raises_and_leaves_the_tensor(
    ranks: Callable[[Rank, Any], list[Any]], accelerator: SimulatedAccelerator
) -> None:
    def rank_main(group: ProcessGroupP4Reduce, device: SimulatedAccelerator) -> torch.Tensor:
        mine = device.tensor(numbers(0, shape=(6 - group.rank(), 5)))
        work = group.allreduce([mine])
        future = work.get_future()
        with pytest.raises(dist.DistBackendError, match="p4reduce:all_reduce"):
            work.wait()
        with pytest.raises(Exception, match="p4reduce:all_reduce"):
            future.wait()
        return device.read(mine)

    for rank, left in enumerate(ranks(rank_main, accelerator)):
        assert torch.equal(left, numbers(0, shape=(6 - rank, 5)))


def test_negated_and_conjugated_views_are_taken_as_their_numbers(ranks: Callable[[Rank, Any], list[Any]]) -> None:
    def rank_main(group: ProcessGroupP4Reduce, device: Host) -> list[torch.Tensor]:
        views = [torch.full((6,), complex(0, 1 + group.rank())).conj().imag for _ in range(3)]
        assert all(view.is_neg() for view in views)
        group.allreduce(views[:1]).wait()
        group.allreduce_coalesced(views[1:]).wait()
        conjugated = torch.full((6,), complex(0, 1 + group.rank())).conj()
        assert conjugated.is_conj()
        group.broadcast([conjugated], root=1).wait()
        return [*views, conjugated]

    for *views, conjugated in ranks(rank_main, Host()):
        assert all(torch.equal(view, torch.full((6,), -3.0)) for view in views)
        assert torch.equal(conjugated, torch.full((6,), -2j))


def test_set_timeout_reaches_the_group_of_another_backend(ranks: Callable[..., list[Any]]) -> None:
    def rank_main(group: ProcessGroupP4Reduce, _device: Any) -> list[timedelta]:
        gloo = dist.ProcessGroupGloo(dist.HashStore(), 0, 1, timedelta(minutes=1))
        other = dist.ProcessGroup(0, 1)
        other._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)
        other._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        group._others["cuda"] = other
        found = []
        set_by_torch = getattr(dist, "set_timeout", dist.distributed_c10d._set_pg_timeout)
        for seconds, set_it in enumerate((group.set_timeout, lambda timeout: set_by_torch(timeout, group)), 5):
            set_it(timedelta(seconds=seconds))
            found += [group._timeout, gloo.options._timeout]
        return found

    assert ranks(rank_main) == [[timedelta(seconds=seconds) for seconds in (5, 5, 6, 6)]] * 2


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_results_on_cuda_are_those_on_the_host(ranks: Callable[[Rank, Any], list[Any]]) -> None:
    class Cuda(Host):
        def tensor(self, values: torch.Tensor) -> torch.Tensor:
            torch.cuda._sleep(10_000_000)  # so that what does not wait for this stream is too early
            return values.to("cuda", non_blocking=True)

        def read(self, tensor: torch.Tensor) -> torch.Tensor:
            return tensor.cpu()

    wanted, found = ranks(every_collective, Host()), ranks(every_collective, Cuda())
    for rank in range(RANKS):
        for mine, other in zip(found[rank], wanted[rank], strict=True):
            assert torch.equal(mine, other)
