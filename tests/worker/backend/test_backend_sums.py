"""Sums of the backend: with a factor, and the keys of a group; two ranks in this process."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from p4reduce.pytorch.backend.group import ProcessGroupP4Reduce

Ranks = Callable[..., list[Any]]
FLOATS = torch.float32, torch.float16, torch.bfloat16


def options_of(kind: Any, op: Any) -> Any:
    made = kind()
    made.reduceOp = op
    return made


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


def test_a_group_that_has_ended_leaves_no_key(ranks: Ranks) -> None:
    def rank_main(group: ProcessGroupP4Reduce, world: bool) -> Any:
        store, group._is_world = group._store, world
        group.allreduce([torch.ones(3)]).wait()
        assert store.list_keys()
        group.shutdown()
        return store

    for world in (True, False):
        assert [store.list_keys() for store in ranks(rank_main, world)] == [[], []]
