"""Sums of the backend: of tensors for several collectives, and with a factor; two ranks in this process."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from p4reduce.pytorch.backend import sums
from p4reduce.pytorch.backend.compressed import CompressedSums
from p4reduce.pytorch.backend.group import ProcessGroupP4Reduce
from p4reduce.pytorch.backend.options import Options

Ranks = Callable[..., list[Any]]
FLOATS = torch.float32, torch.float16, torch.bfloat16


def numbers(rank: int, dtype: torch.dtype, size: int) -> torch.Tensor:
    found = torch.randn(size, generator=torch.Generator().manual_seed(rank))
    return (100 * found if dtype == torch.int32 else found).to(dtype)


def options_of(kind: Any, op: Any) -> Any:
    made = kind()
    made.reduceOp = op
    return made


def results(group: ProcessGroupP4Reduce, _: object) -> list[torch.Tensor]:
    """Return every sum and copy of tensors of about 5 KB."""
    rank, found = group.rank(), []
    for dtype in (*FLOATS, torch.complex64, torch.int32):
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            mine = [numbers(rank + 2 * n, dtype, size) for n, size in enumerate((1300, 10, 0, 800, 1302))]
            mine[3], mine[4] = mine[3].view(4, 200).t(), mine[4].reshape(31, 42).t()
            group.allreduce_coalesced(mine, options_of(dist.AllreduceCoalescedOptions, op)).wait()
            given, halves = numbers(rank, dtype, 2002), list(numbers(rank, dtype, 2002).split(1001))
            parts = [torch.zeros(1001, dtype=dtype) for _ in range(2)]
            how = options_of(dist.ReduceScatterOptions, op)
            group._reduce_scatter_base(parts[0], given, how).wait()
            group.reduce_scatter(parts[1:], [halves], how).wait()
            assert torch.equal(given, numbers(rank, dtype, 2002)), "it is only read"
            found += [*mine, *parts]
        copied = numbers(rank, dtype, 1302).reshape(31, 42).t()
        group.broadcast([copied], root=1).wait()
        found.append(copied)
    return found


def test_a_tensor_that_takes_several_collectives_has_the_bits_of_one(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ranks(lambda group, _: (results(group, _), group.join().operations))
    monkeypatch.setattr(sums, "MOST_BYTES", 1024)
    pieces = ranks(lambda group, _: (results(group, _), group.join().operations))
    assert pieces[0][1] - whole[0][1] > whole[0][1] == 35, "they were not cut"
    for mine, other in zip(pieces, whole, strict=True):
        assert all(map(torch.equal, mine[0], other[0]))


def test_of_several_collectives_one_may_go_over_gloo(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "MOST_BYTES", 1024)

    def rank_main(group: ProcessGroupP4Reduce, _: object) -> tuple[torch.Tensor, torch.Tensor]:
        mine, part = torch.ones(800), torch.zeros(400)
        mine[400] = torch.nan if group.rank() else 1
        group._reduce_scatter_base(part, mine.clone()).wait()
        group.allreduce([mine]).wait()
        return mine, part

    for rank, (summed, part) in enumerate(ranks(rank_main)):
        assert summed.isnan().sum() == 1 and summed.nansum() == 2 * 799
        torch.testing.assert_close(part, summed[400 * rank :][:400], equal_nan=True)


def test_a_compressed_tensor_may_take_several_collectives(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "MOST_BYTES", 1024)
    monkeypatch.setattr(CompressedSums, "names", lambda self, collective, tensors: ["one"])

    def rank_main(group: ProcessGroupP4Reduce, _: object) -> tuple[torch.Tensor, set[str]]:
        group.allreduce([mine := numbers(group.rank(), torch.float32, 1300)]).wait()
        return mine, group._compressed.compressor.state_dict()["residues"].keys()

    wanted = sum(numbers(rank, torch.float32, 1300) for rank in range(2))
    for mine, names in ranks(rank_main, None, Options(compressor="quantize", compress_bytes=1)):
        torch.testing.assert_close(mine, wanted, atol=0.5, rtol=0)
        assert len(names) == 6


@pytest.mark.parametrize("as_tensor", [False, True])
def test_a_premultiplied_sum_has_each_rank_s_factor(ranks: Ranks, as_tensor: bool) -> None:
    def rank_main(group: ProcessGroupP4Reduce, _: object) -> None:
        def premultiplied(kind: Any, dtype: torch.dtype) -> Any:
            factor = 0.25 + group.rank()
            return options_of(
                kind, dist._make_nccl_premul_sum(torch.tensor([factor], dtype=dtype) if as_tensor else factor)
            )

        for dtype in (*FLOATS, torch.float64):  # which goes over gloo
            given = [torch.arange(-8, 8).to(dtype) for _ in range(2)]
            wanted = given[0] * 1.5
            mine, other = given[0].clone(), given[0].clone()
            group.allreduce([mine], premultiplied(dist.AllreduceOptions, dtype)).wait()
            group.allreduce_coalesced([other], premultiplied(dist.AllreduceCoalescedOptions, dtype)).wait()
            assert torch.equal(mine, wanted) and torch.equal(other, wanted), dtype
            half = wanted[8 * group.rank() :][:8]
            part, row = torch.zeros(8, dtype=dtype), torch.zeros(8, dtype=dtype)
            how = premultiplied(dist.ReduceScatterOptions, dtype)
            group._reduce_scatter_base(part, given[1], how).wait()
            how = premultiplied(dist.ReduceScatterOptions, dtype)
            group.reduce_scatter([row], [list(given[1].split(8))], how).wait()
            assert torch.equal(part, half) and torch.equal(row, half)
            assert torch.equal(given[0], given[1]), "it is only read"
        with pytest.raises(TypeError, match="multiplies floats, and a tensor is torch.int32"):
            group.allreduce([torch.ones(3, dtype=torch.int32)], premultiplied(dist.AllreduceOptions, torch.float32))

    ranks(rank_main)
    alone = ProcessGroupP4Reduce.over(dist.HashStore(), 0, 1, timeout=timedelta(seconds=60))
    alone.allreduce(mine := [torch.ones(3)], options_of(dist.AllreduceOptions, dist._make_nccl_premul_sum(0.5))).wait()
    assert mine[0].tolist() == [0.5] * 3
    alone.shutdown()


@pytest.mark.parametrize("op", [dist.ReduceOp.SUM, dist.ReduceOp.AVG])
def test_a_sparse_tensor_has_the_sum_or_the_mean_of_all_ranks(ranks: Ranks, op: Any) -> None:
    def rank_main(group: ProcessGroupP4Reduce, _: object) -> list[float]:
        mine = torch.sparse_coo_tensor(
            [[1, 1 + group.rank()]], [1.0, 2.0], (4,), requires_grad=True, check_invariants=True
        )
        group.allreduce([mine], options_of(dist.AllreduceOptions, op)).wait()
        assert mine.is_sparse
        return list(mine.detach().to_dense().tolist())

    half = 2.0 if op == dist.ReduceOp.AVG else 1.0
    assert ranks(rank_main) == [[0.0, 4 / half, 2 / half, 0.0]] * 2


def test_a_group_that_has_ended_leaves_no_key(ranks: Ranks) -> None:
    def rank_main(group: ProcessGroupP4Reduce, world: bool) -> Any:
        store, group._is_world = group._store, world
        group.allreduce([torch.ones(3)]).wait()
        assert store.list_keys()
        group.shutdown()
        return store

    for world in (True, False):
        assert [store.list_keys() for store in ranks(rank_main, world)] == [[], []]
    assert rank_main(ProcessGroupP4Reduce.over(dist.HashStore(), 0, 1), True).list_keys() == []
