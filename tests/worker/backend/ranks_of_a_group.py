"""One rank of a process group of the backend p4reduce; `test_backend.py` starts several. Prints "ok" at the end."""

from __future__ import annotations

import copy
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from p4reduce import DDPState, Quantize, ddp_hook
from p4reduce.pytorch.backend import calls
from p4reduce.pytorch.backend.options import Options
from p4reduce_contracts.jobs.answers import JobInfo
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import SwitchFullError

SUM, AVG, MAX, MIN = dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX, dist.ReduceOp.MIN


def given(rank: int, dtype: torch.dtype, shape: tuple[int, ...] = (37, 11)) -> torch.Tensor:
    """Return a rank's tensor: small whole numbers, whose sums every dtype holds."""
    numbers = torch.randint(-9, 9, shape, generator=torch.Generator().manual_seed(rank))
    if dtype.is_complex:
        return torch.complex(numbers.float(), numbers.float() + 1)
    return numbers.to(dtype)


def total(dtype: torch.dtype, shape: tuple[int, ...] = (37, 11)) -> torch.Tensor:
    return sum(given(rank, dtype, shape) for rank in range(dist.get_world_size()))


def check_sums(group: dist.ProcessGroup | None = None) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    shape, wholes = (size * 6, 50), (torch.int32, torch.int64)
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.float64, *wholes):
        for op in (SUM, AVG):
            mine, wanted = given(rank, dtype, shape), total(dtype, shape)
            if op == AVG:
                wanted = torch.div(wanted, size, rounding_mode="trunc" if dtype in wholes else None)
            parts = [torch.empty(6, 50, dtype=dtype) for _ in range(2)]
            dist.reduce_scatter_tensor(parts[0], mine, op=op, group=group)
            dist.reduce_scatter(parts[1], list(mine.split(6)), op=op, group=group)
            assert torch.equal(mine, given(rank, dtype, shape)), "it is only read"
            work = dist.all_reduce(summed := mine.clone(), op=op, async_op=True, group=group)
            assert work.wait() and work.is_completed()
            dist.all_reduce(mine, op=op, group=group)
            rtol = 0 if op == SUM or dtype in wholes else torch.finfo(dtype).eps  # a mean is rounded once
            for got, of_all in ((mine, wanted), (summed, wanted), *((part, wanted.split(6)[rank]) for part in parts)):
                torch.testing.assert_close(got, of_all, rtol=rtol, atol=0)
    scalar = torch.tensor(1.5)
    dist.all_reduce(scalar, group=group)
    assert scalar.item() == 1.5 * size
    empty = torch.zeros(0)
    dist.all_reduce(empty)
    beside = [torch.zeros(0, 5), given(rank, torch.float32), torch.zeros(0)]
    dist.all_reduce_coalesced(beside)
    assert torch.equal(beside[1], total(torch.float32))
    with dist._coalescing_manager(group):
        tensors = [given(rank, torch.float32), given(rank, torch.float32, (5,))]
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
    assert torch.equal(tensors[0], total(torch.float32)) and torch.equal(tensors[1], total(torch.float32, (5,)))


def check_sums_of_floats_over_gloo() -> None:
    size = dist.get_world_size()
    group = dist.new_group(pg_options=Options(float_sums="gloo"))
    switch = dist.new_group(pg_options=Options(float_sums="switch"))
    for dtype in (torch.float32, torch.bfloat16):
        whole, mine = torch.tensor([1e30, 2.0] * size, dtype=dtype), torch.tensor([1e30, 2.0], dtype=dtype)
        part = torch.empty(2, dtype=dtype)
        dist.reduce_scatter_tensor(part, whole, group=group)
        dist.all_reduce(mine, group=group)
        assert mine[1] == part[1] == 2 * size
        for over, wanted in ((switch, 0), (dist.group.WORLD, 2 * size if dtype is torch.float32 else 0)):
            mine = torch.tensor([1e30, 2.0], dtype=dtype)
            dist.all_reduce(mine, group=over)
            assert mine[1] == wanted
            dist.reduce_scatter_tensor(part, whole, group=over)
            assert part[1] == wanted
    whole_numbers = given(dist.get_rank(), torch.int32)
    dist.all_reduce(whole_numbers, group=group)
    assert torch.equal(whole_numbers, total(torch.int32))


def check_assignment() -> None:
    """Assign samples to prototypes in equal shares (Sinkhorn), by sums of exp(score / 0.03), of one rank by no more."""
    size = dist.get_world_size()
    generator = torch.Generator().manual_seed(7)
    prototypes = nn.functional.normalize(torch.randn(64, 32, generator=generator), dim=1)
    generator.manual_seed(dist.get_rank())
    samples = prototypes[torch.randint(0, 24, (48,), generator=generator)]
    samples = nn.functional.normalize(samples + 0.08 * torch.randn(48, 32, generator=generator), dim=1)

    def assign(group: dist.ProcessGroup | None) -> torch.Tensor:
        q = (prototypes @ samples.t() / 0.03).exp()
        total = q.sum()
        dist.all_reduce(total, group=group)
        q /= total
        for _ in range(3):
            rows = q.sum(1, keepdim=True)
            dist.all_reduce(rows, group=group)
            q /= rows * 64
            q /= q.sum(0, keepdim=True) * 48 * size
        return q

    comm = dist.group.WORLD.join()
    before = comm.underflows
    torch.testing.assert_close(assign(None), assign(dist.new_group(backend="gloo")))
    assert comm.underflows - before == 3
    gradients = torch.randn(100_000, generator=generator) * 1e-4
    for tensor in (gradients, given(dist.get_rank(), torch.int32)):
        dist.all_reduce(tensor)
    assert comm.underflows - before == 3


def check_copies(group: dist.ProcessGroup | None = None) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    # large broadcasts go over gloo and over the switch, until after four calls one is chosen; all else over gloo
    for dtype, repeats in ((torch.float32, 5), (torch.int64, 2), (torch.bfloat16, 1), (torch.bool, 1)):
        for shape in ((3, 7), *repeats * [(700, 401)]):
            mine = given(rank, dtype, shape)
            dist.broadcast(mine, 1, group=group)
            assert torch.equal(mine, given(1, dtype, shape))
            rows = [given(each, dtype, shape) for each in range(size)]
            stacked = torch.empty((size, *shape), dtype=dtype)
            dist.all_gather_into_tensor(stacked, rows[rank], group=group)
            assert torch.equal(stacked, torch.stack(rows))


def check_not_finite() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for op in (SUM, AVG):
        for dtype in (torch.float32, torch.bfloat16):
            mine = torch.ones(5000, dtype=dtype)
            if rank == 1:
                mine[7], mine[8] = float("inf"), float("nan")
            dist.all_reduce(mine, op=op)
            assert mine[7].isinf() and mine[8].isnan() and mine[9] == (size if op == SUM else 1)
    mine = torch.full((50,), complex(1, float("inf") if rank == 1 else 2), dtype=torch.complex64)
    dist.all_reduce(mine)
    assert torch.view_as_real(mine)[9].tolist() == [size, float("inf")]
    whole, part = torch.ones(size, 2, 3), torch.empty(2, 3)
    whole[:, 0, 1] = float("inf") if rank == 1 else 1
    before = whole.clone()
    for op in (SUM, AVG):
        one = size if op == SUM else 1
        dist.reduce_scatter_tensor(part, whole, op=op)
        assert part.tolist() == [[one, float("inf"), one], [one] * 3] and torch.equal(whole, before)
        part.zero_()
        dist.reduce_scatter(part, list(whole), op=op)
        assert part.tolist() == [[one, float("inf"), one], [one] * 3] and torch.equal(whole, before)
    mine = torch.ones(5)
    dist.all_reduce(mine)
    assert mine.tolist() == [size] * 5


def check_futures() -> None:
    """A callback may call a collective."""
    size = dist.get_world_size()

    def and_again(future: torch.futures.Future) -> torch.Tensor:
        (tensor,) = future.value()
        dist.all_reduce(tensor)
        return tensor

    summed = dist.all_reduce(torch.ones(9), async_op=True).get_future().then(and_again)
    assert summed.wait().tolist() == [size * size] * 9


def check_records() -> None:
    """Check what torch counts and records of collectives over the switch (the first two) and over gloo."""
    mine, size = torch.ones(6, 5), dist.get_world_size()
    assert dist.get_backend() == "p4reduce"
    before = dist.group.WORLD._get_sequence_number_for_group()
    with torch.profiler.profile(record_shapes=True) as profile:
        dist.all_reduce(mine)
        dist.reduce_scatter_tensor(torch.empty(2, 5), torch.ones(2 * size, 5), async_op=True).wait()
        dist.all_gather([torch.empty(6, 5) for _ in range(size)], mine)
        dist.all_reduce(torch.ones(3, dtype=torch.float64))
    assert dist.group.WORLD._get_sequence_number_for_group() == before + 4
    shapes = [(event.name, event.input_shapes) for event in profile.events() if event.name.startswith("c10d::")]
    assert shapes == [
        ("c10d::allreduce_", [[6, 5]]),
        ("c10d::_reduce_scatter_base_", [[2, 5], [2 * size, 5]]),
        ("c10d::allgather_", [[6, 5]] * (size + 1)),
        ("c10d::allreduce_", [[3]]),
    ]


def check_functional(calls: str) -> None:
    """Functional collectives, which are called by torch's C++ code, one after the other: the methods must not block."""
    rank, size, world = dist.get_rank(), dist.get_world_size(), dist.group.WORLD
    for _ in range(int(calls)):
        gathered = functional.all_gather_tensor(torch.ones(50) * rank, 0, world).wait()
        assert gathered.view(size, 50)[:, 0].tolist() == list(range(size))
    large = functional.all_gather_tensor(given(rank, torch.float32, (700, 401)), 0, world).wait()
    assert torch.equal(large, torch.cat([given(each, torch.float32, (700, 401)) for each in range(size)]))
    two = functional.all_gather_into_tensor_coalesced([torch.ones(2) * rank, torch.ones(3, dtype=torch.int64)], world)
    assert two[0].tolist() == [each for each in range(size) for _ in range(2)] and two[1].tolist() == [1] * 3 * size
    before = world._submitted
    for op, one in (("sum", size), ("avg", 1)):
        parts = [torch.ones(2 * size, 3), torch.ones(size)]
        assert functional.reduce_scatter_tensor(parts[0], op, 0, world).tolist() == [[one] * 3] * 2
        two = functional.reduce_scatter_tensor_coalesced(parts, op, [0, 0], world)
        assert two[0].tolist() == [[one] * 3] * 2 and two[1].tolist() == [one]
    assert world._submitted == before + 4, "not all went over the switch"
    assert functional.reduce_scatter_tensor(torch.ones(size).double(), "avg", 0, world).tolist() == [1]
    turned = functional.all_to_all_single(torch.full((size,), rank), None, None, world).wait()
    assert turned.tolist() == list(range(size))


LAYOUTS = {
    "contiguous": lambda values: values.clone(),
    "transposed": lambda values: values.transpose(0, 3).contiguous().transpose(0, 3),
    "channels last": lambda values: values.clone(memory_format=torch.channels_last),
    "every second element": lambda values: torch.stack([values, values + 1], -1)[..., 0],
    "columns": lambda values: torch.cat([values, values + 1], 3)[..., : values.shape[3]],
    "negated": lambda values: (-values)._neg_view(),
}
"""Name -> the function that makes the same tensor in another layout."""


def check_layouts(*names: str) -> None:
    """Check all collectives of tensors in these layouts, or in each."""
    rank, size = dist.get_rank(), dist.get_world_size()

    def run(lay: Callable[[torch.Tensor], torch.Tensor], shape: tuple[int, ...], dtype: torch.dtype) -> None:
        of = [given(each, dtype, shape) for each in range(size)]
        pairs = [[given(size * a + b, dtype, shape) for b in range(size)] for a in range(size)]
        summed, mine, from_all = sum(of), pairs[rank], [row[rank] for row in pairs]

        def empty() -> torch.Tensor:
            return lay(torch.zeros(shape, dtype=dtype))

        def empties() -> list[torch.Tensor]:
            return [empty() for _ in range(size)]

        def check(what: str, got: list[torch.Tensor], wanted: list[torch.Tensor]) -> None:
            for one, other in zip(got, wanted, strict=True):
                torch.testing.assert_close(one, other, msg=f"{what} of {shape}, {dtype}")

        for op, wanted in ((SUM, summed), (MAX, torch.stack(of).amax(0)), (MIN, torch.stack(of).amin(0))):
            dist.all_reduce(all_reduced := lay(of[rank]), op)
            check(f"all_reduce {op}", [all_reduced], [wanted])
            dist.reduce(reduced := lay(of[rank]), 1, op)
            check(f"reduce {op}", [reduced] * (rank == 1), [wanted] * (rank == 1))
        dist.broadcast(copied := lay(of[rank]), 1)
        check("broadcast", [copied], [of[1]])
        dist.all_gather(rows := empties(), lay(of[rank]))
        check("all_gather", rows, of)
        dist.all_gather_into_tensor(
            stacked := lay(torch.zeros(size * shape[0], *shape[1:], dtype=dtype)), lay(of[rank])
        )
        check("all_gather_into_tensor", [stacked], [torch.cat(of)])
        dist.gather(lay(of[rank]), rows := empties() if rank == 1 else None, 1)
        check("gather", rows or [], of if rank == 1 else [])
        dist.scatter(part := empty(), [lay(each) for each in pairs[1]] if rank == 1 else None, 1)
        check("scatter", [part], [pairs[1][rank]])
        for op in (SUM, AVG):
            whole = sum(from_all) / (size if op != SUM else 1)
            dist.reduce_scatter(part := empty(), [lay(each) for each in mine], op)
            check(f"reduce_scatter {op}", [part], [whole])
            dist.reduce_scatter_tensor(part := empty(), lay(torch.cat(mine)), op)
            check(f"reduce_scatter_tensor {op}", [part], [whole])
        dist.all_to_all(rows := empties(), [lay(each) for each in mine])
        check("all_to_all", rows, from_all)
        dist.all_to_all_single(
            turned := lay(torch.zeros(size * shape[0], *shape[1:], dtype=dtype)), lay(torch.cat(mine))
        )
        check("all_to_all_single", [turned], [torch.cat(from_all)])
        for source in (0, None):
            if rank == 0:
                dist.send(lay(of[0]), 1)
            elif rank == 1:
                assert dist.recv(got := empty(), source) == 0
                check("recv", [got], [of[0]])

    for lay in map(LAYOUTS.__getitem__, names or LAYOUTS):
        for dtype in (torch.float32, torch.float64):
            for shape in ((2, 3, 4, 5), (2, 32, 32, 160)):
                run(lay, shape, dtype)
    shared = torch.ones(1, 3).expand(4, 3)
    dist.all_gather(rows := [torch.zeros(4, 3) for _ in range(size)], shared)
    assert all(row.eq(1).all() for row in rows)
    for collective in (
        dist.all_reduce,
        lambda tensor: dist.all_reduce(tensor, MAX),
        lambda tensor: dist.broadcast(tensor, 0),
    ):
        with pytest.raises(ValueError, match=r"call \.contiguous\(\)"):  # one memory cannot hold several results
            collective(shared)


def take_all_slots(client: JobClient) -> list[JobInfo]:
    """Make jobs of all free slots, which may lie between those of a job whose rank was killed."""
    taken: list[JobInfo] = []
    size = client.list_jobs().free_slots
    while free := client.list_jobs().free_slots:
        try:
            taken.append(client.create_job(f"taken-{len(taken)}", 2, min(size, free)))
        except SwitchFullError:
            size = max(1, size // 2)
    return taken


def check_no_room() -> None:
    """A subgroup's collectives when another job has taken all slots."""
    rank = dist.get_rank()
    with JobClient(os.environ["P4REDUCE_CONTROLLER"]) as client:
        if rank == 0:
            taken = take_all_slots(client)
        dist.barrier()
        pair = dist.new_group([0, 1])
        check_sums(pair)
        check_copies(pair)
        dist.barrier(pair)
        needs = "takes gloo for all collectives: rank 0 could not make a job"
        with pytest.raises(dist.DistBackendError, match=needs):
            DDPState(pair)
        if rank == 0:
            for job in taken:
                client.remove_job(job.name)


def check_hook(name: str) -> None:
    """Train by DDP with one of torch's own communication hooks; the ranks' weights are equal then."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))
    ddp = DistributedDataParallel(model)  # PowerSGD's callbacks need one bucket at a time, over gloo too
    if name == "fp16":
        ddp.register_comm_hook(None, fp16_compress_hook)
    else:
        ddp.register_comm_hook(PowerSGDState(None, 1, 2), powerSGD_hook)
    optimizer = torch.optim.SGD(ddp.parameters(), 0.1)
    for step in range(5):
        x = torch.randn(8, 20, generator=torch.Generator().manual_seed(10 * step + dist.get_rank()))
        optimizer.zero_grad()
        ddp(x).square().mean().backward()
        optimizer.step()
    gloo = dist.new_group(backend="gloo")
    for weight in model.parameters():
        rows = [torch.empty_like(weight) for _ in range(dist.get_world_size())]
        dist.all_gather(rows, weight.detach(), group=gloo)
        assert all(torch.equal(rows[0], row) for row in rows), "the ranks' weights differ"


def check_sparse_gradients() -> None:
    """The hook's mean of a sparse gradient beside dense ones is that of torch's own hook."""
    rank, size = dist.get_rank(), dist.get_world_size()

    def loss(model: nn.Module, of: int) -> torch.Tensor:
        return model(torch.arange(5 * of, 5 * of + 7)).square().sum()

    for compressor in (None, Quantize(16)):
        plain = nn.Sequential(nn.Embedding(50, 8, sparse=True), nn.Linear(8, 4))
        for weight in plain.parameters():
            dist.broadcast(weight.data, 0)
        ddp = DistributedDataParallel(copy.deepcopy(plain))
        with DDPState(dist.group.WORLD, compressor, module=ddp) as state:
            ddp.register_comm_hook(state, ddp_hook)
            for _ in range(2):
                ddp.zero_grad()
                loss(ddp, rank).backward()
        sum(loss(plain, each) / size for each in range(size)).backward()
        for got, wanted in zip(ddp.parameters(), plain.parameters(), strict=True):
            assert got.grad.is_sparse == wanted.grad.is_sparse
            torch.testing.assert_close(got.grad.to_dense(), wanted.grad.to_dense(), rtol=1e-2, atol=1e-2)


def set_timeout(seconds: float, group: dist.ProcessGroup) -> None:
    getattr(dist, "set_timeout", dist.distributed_c10d._set_pg_timeout)(timedelta(seconds=seconds), group)


def check_timeout() -> None:
    """Collectives that the others do not call end with errors that say "timed out"; the last check.

    One after its own limit, one after that of its group, which torchtitan sets after its first step.
    """
    store, pair = dist.distributed_c10d._get_default_store(), dist.new_group([0, 1])
    dist.all_reduce(torch.ones(5), group=pair)
    set_timeout(1, pair)
    if dist.get_rank():
        store.wait(["rank 0 has its errors"], timedelta(seconds=60))
        return
    own = dist.AllreduceOptions()
    own.timeout = timedelta(seconds=1)
    waits = "rank 1 is in none" if dist.get_debug_level() == dist.DebugLevel.DETAIL else "still waits for rank 1"
    for group, options in ((pair, dist.AllreduceOptions()), (dist.group.WORLD, own)):
        with pytest.raises(dist.DistBackendError, match=f"timed out; its timeout was 1 s.*{waits}"):
            group.allreduce([torch.ones(5)], options).wait()
    print("timed out as it should", flush=True)
    store.set("rank 0 has its errors", "")


def check_different_collectives() -> None:
    """One rank over gloo, one over p4reduce, which wait for each other; in detailed debugging not for long."""
    rank, seconds = dist.get_rank(), 60 if dist.get_debug_level() == dist.DebugLevel.DETAIL else 2
    calls.OTHERS_S = 60.0  # for slow machines: that both write is what ends it
    pair = dist.new_group([0, 1])
    dist.all_reduce(torch.ones(4), group=pair)
    set_timeout(seconds, pair)
    first = r"rank 0 is in all_gather number 2 \(4 float32\) over gloo"
    with pytest.raises(RuntimeError, match=rf"{first}, rank 1 is in all_reduce number 2 \(5 float32\) over p4reduce"):
        if rank:
            dist.all_reduce(torch.ones(5), group=pair)
        else:
            dist.all_gather([torch.ones(4), torch.ones(4)], torch.ones(4), group=pair)
    dist.barrier()


def check_fails_in_a_callback() -> None:
    """Rank 0 fails while a callback waits in a collective that rank 1 does not call; rank 1 waits for its end."""
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank():
        dist.all_reduce(torch.ones(5))
        ended, _, _ = select.select([os.pidfd_open(int(store.get("rank 0")))], [], [], 120)
        raise SystemExit("rank 0 ended" if ended else "rank 0 did not end")
    waits = threading.Event()
    options = dist.AllreduceOptions()
    options.timeout = timedelta(minutes=10)

    def callback(_future: torch.futures.Future) -> None:
        waits.set()
        dist.group.WORLD.allreduce([torch.ones(5)], options).wait()

    dist.all_reduce(torch.ones(5), async_op=True).get_future().then(callback)
    assert waits.wait(60)
    store.set("rank 0", str(os.getpid()))
    raise SystemExit("rank 0 fails")


def check_join_with_a_compressor() -> None:
    """Uneven inputs under DDP.join(), with P4REDUCE_COMPRESSOR: the error names the documentation; the last check."""
    ddp = DistributedDataParallel(nn.Linear(100, 100))
    optimizer = torch.optim.SGD(ddp.parameters(), 0.1)
    said = r"(?s)different collectives.*docs/torch-backend\.md#compression"  # rank 0 sends sums of join() in full
    with pytest.raises(RuntimeError, match=said), ddp.join():
        for _ in range(2 + 2 * dist.get_rank()):
            optimizer.zero_grad()
            ddp(torch.ones(3, 100)).sum().backward()
            optimizer.step()


def check_dies_before_gloo() -> None:
    """Rank 1 dies after the switch has told all of a NaN; rank 0 sees it in gloo's sum, not by its time limit."""
    world = dist.group.WORLD
    if dist.get_rank():
        world._gloo_of_thread = lambda: os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.all_reduce(torch.full((5,), float("nan")))
    except dist.DistStoreError:
        raise
    except RuntimeError as error:
        print("failed as it should:", error, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


def check_killed() -> None:
    dist.all_reduce(torch.ones(5))
    dist.barrier()
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    dist.init_process_group("p4reduce", timeout=timedelta(seconds=60))
    for check in sys.argv[1:]:
        name, _, argument = check.partition("=")
        globals()[f"check_{name}"](*[argument] if argument else [])
        print(check, "passed", flush=True)
    dist.destroy_process_group()
    print("ok", flush=True)


main()
