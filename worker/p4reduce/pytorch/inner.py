"""The ranks of a host (compressors/host_group.py), over which their own process group sums, NCCL's for example.

On the host's group each rank calls the scatters of a backward pass first, then `outcomes`, then the gathers: in the
same order on all of them, whichever sum between hosts ends first. Without a compressor a shard is a span of the bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import torch
import torch.distributed as dist

from p4reduce.compressors.host_group import Piece, Spans, pieces_of

_reduce_scatter: Any = vars(dist).get("reduce_scatter_single", dist.reduce_scatter_tensor)
_all_gather: Any = vars(dist).get("all_gather_single", dist.all_gather_into_tensor)
"""The names from torch 2.13 on; the others warn there."""


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
    rows: list[list[Piece]]
    """The pieces of each shard."""
    direct: bool
    """Whether the shards are equal spans of the bucket, one after the other."""
    pieces: list[Piece]
    """The pieces of `mine`, which lie there one after the other."""


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
        if by_parameter:
            rows = [pieces_of(shard, self.size, spans) for shard in range(self.size)]
        else:
            rows = [_span_of(shard, -(-bucket.numel() // self.size), spans) for shard in range(self.size)]
        length = max(sum(piece.end - piece.begin for piece in row) for row in rows)
        direct = not by_parameter and length * self.size == bucket.numel()
        mine = bucket.new_empty(length)
        given = bucket if direct else torch.cat([piece for row in rows for piece in _padded(bucket, row, length)])
        _reduce_scatter(mine, given, group=self._group)
        return Shards(bucket, mine, rows, direct, rows[self.rank])

    def gather(self, shards: Shards) -> None:
        """Write all shards to the bucket."""
        length = shards.mine.numel()
        found = shards.bucket if shards.direct else shards.mine.new_empty(length * self.size)
        _all_gather(found, shards.mine, group=self._group)
        for shard, row in enumerate([] if shards.direct else shards.rows):
            at = shard * length
            for _, begin, end, _ in row:
                shards.bucket[begin:end].copy_(found[at : at + end - begin])
                at += end - begin

    def outcomes(self, mine: Passed, device: torch.device) -> list[Passed]:
        """Return what every rank says, by rank."""
        found = torch.empty(self.size, dtype=torch.int32, device=device)
        _all_gather(found, torch.tensor([mine], dtype=torch.int32, device=device), group=self._group)
        return [Passed(one) for one in found.tolist()]


def _span_of(shard: int, length: int, spans: Spans) -> list[Piece]:
    """Return the pieces of a shard that is a span of `length` elements."""
    first, last = length * shard, length * (shard + 1)
    return [
        Piece(name, max(begin, first), min(end, last), max(0, first - begin))
        for name, (begin, end) in spans.items()
        if max(begin, first) < min(end, last)
    ]


def _padded(bucket: torch.Tensor, row: Sequence[Piece], length: int) -> list[torch.Tensor]:
    """Return the numbers of a shard's pieces, and zeros up to its length."""
    pieces = [bucket[piece.begin : piece.end] for piece in row]
    return [*pieces, bucket.new_zeros(length - sum(piece.numel() for piece in pieces))]
