"""The ranks of a host, over which their own process group sums, NCCL's for example.

A bucket is cut into one shard for each rank of the host. `scatter` sums shard p on rank p of the host, the hook then
sums it between hosts, and `gather` brings all shards to all ranks of the host. On the host's group each rank calls the
scatters of a backward pass first, then `outcomes`, then the gathers: in the same order on all of them, whichever sum
between hosts ends first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import torch
import torch.distributed as dist

from p4reduce.paths.hosts.plan import elements_of

_reduce_scatter: Any = vars(dist).get("reduce_scatter_single", dist.reduce_scatter_tensor)
_all_gather: Any = vars(dist).get("all_gather_single", dist.all_gather_into_tensor)
"""The names from torch 2.13 on; the others warn there."""
Spans = Mapping[str, tuple[int, int]]
"""Parameter -> its begin and end among the elements of a bucket."""


class Passed(IntEnum):
    """What came of a backward pass between hosts, on one rank."""

    DONE = 0
    SKIPPED = 1
    REFUSED = 2
    FAILED = 3


@dataclass(frozen=True)
class Shards:
    """A bucket whose shards are on the ranks of the host."""

    bucket: torch.Tensor
    mine: torch.Tensor
    """The mean over the host of this rank's shard, [elements]; all shards are of one length."""
    rows: list[list[tuple[str, int, int]]]
    """What each shard has: parameters, and the begins and ends in the bucket."""
    direct: bool
    """Whether the shards are equal pieces of the bucket, one after the other."""
    parts: dict[str, tuple[int, int, int]]
    """Parameter -> begin and end in `mine` of what it has of it, and the index of its first element."""


class InnerRanks:
    """The ranks of this host."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.size: int = group.size()
        self.rank: int = group.rank()
        self._group = group

    def scatter(self, bucket: torch.Tensor, spans: Spans, *, by_parameter: bool) -> Shards:
        """Sum a bucket over the host; `by_parameter`: each shard has a part of each parameter, as compressors need it.

        Divides the bucket by the number of ranks first, as torch's own hooks do: sums of float16 could overflow.
        """
        bucket.div_(self.size)
        rows = [self._row(shard, bucket.numel(), spans, by_parameter) for shard in range(self.size)]
        length = max(sum(end - begin for _, begin, end in row) for row in rows)
        direct = not by_parameter and length * self.size == bucket.numel()
        parts, at = {}, 0
        for name, begin, end in rows[self.rank]:
            parts[name] = at, at + end - begin, begin - spans[name][0]
            at += end - begin
        mine = bucket.new_empty(length)
        given = bucket if direct else torch.cat([piece for row in rows for piece in _padded(bucket, row, length)])
        _reduce_scatter(mine, given, group=self._group)
        return Shards(bucket, mine, rows, direct, parts)

    def gather(self, shards: Shards) -> None:
        """Write all shards to the bucket."""
        length = shards.mine.numel()
        found = shards.bucket if shards.direct else shards.mine.new_empty(length * self.size)
        _all_gather(found, shards.mine, group=self._group)
        for shard, row in enumerate([] if shards.direct else shards.rows):
            at = shard * length
            for _, begin, end in row:
                shards.bucket[begin:end].copy_(found[at : at + end - begin])
                at += end - begin

    def outcomes(self, mine: Passed, device: torch.device) -> list[Passed]:
        """Return what every rank says, by rank."""
        found = torch.empty(self.size, dtype=torch.int32, device=device)
        _all_gather(found, torch.tensor([mine], dtype=torch.int32, device=device), group=self._group)
        return [Passed(one) for one in found.tolist()]

    def _row(self, shard: int, elements: int, spans: Spans, by_parameter: bool) -> list[tuple[str, int, int]]:
        first, last = (-(-elements // self.size) * which for which in (shard, shard + 1))
        row = []
        for name, (begin, end) in spans.items():
            if by_parameter:
                first, last = (begin + at for at in elements_of(shard, self.size, end - begin))
            if max(begin, first) < min(end, last):
                row.append((name, max(begin, first), min(end, last)))
        return row


def _padded(bucket: torch.Tensor, row: list[tuple[str, int, int]], length: int) -> list[torch.Tensor]:
    """Return the pieces of a shard, and zeros up to its length."""
    pieces = [bucket[begin:end] for _, begin, end in row]
    return [*pieces, bucket.new_zeros(length - sum(piece.numel() for piece in pieces))]
