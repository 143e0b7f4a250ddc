"""The ranks of a host as one learner: what is equal whether their memory or a process group of theirs sums over them.

scatter   sums a bucket over the host: rank p of the host has shard p then, a part of each parameter
exchange  between hosts, as a bucket of its own (exchange.py): shard p with the ranks p of the other hosts
gather    brings the means of all shards to all ranks of the host, once they know that no rank refused

what sums          module               scatter and gather are called
the host's memory  over_hosts.py        in the bucket's turn: the memory has room for one bucket
a process group    pytorch/inner.py     by backward(), at a bucket and at the end of the pass: NCCL needs one order of
                                        calls on all ranks, and that of the turns differs between them
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from p4reduce.paths.hosts.plan import elements_of

Spans = Mapping[str, tuple[int, int]]
"""Parameter -> its begin and end among the elements of a bucket."""


class Piece(NamedTuple):
    """What a shard has of one parameter."""

    name: str
    begin: int
    """The first element in the bucket."""
    end: int
    offset: int
    """The index of its first element in the parameter."""


def pieces_of(shard: int, shards: int, spans: Spans) -> list[Piece]:
    """Return a shard's part of each parameter; small parameters have elements in some shards alone."""
    found = []
    for name, (begin, end) in spans.items():
        first, last = elements_of(shard, shards, end - begin)
        if first < last:
            found.append(Piece(name, begin + first, begin + last, first))
    return found


def parts_of(
    pieces: Sequence[Piece], values: torch.Tensor, gradients: Mapping[str, torch.Tensor]
) -> tuple[dict[str, torch.Tensor], dict[str, int]]:
    """Return the pieces' numbers, which `values` has one after the other, and their offsets, by parameter.

    They have as many dimensions as the parameter's gradient: policies ask for them.
    """
    lengths = [piece.end - piece.begin for piece in pieces]
    parts = {
        piece.name: part.view(-1, *[1] * (gradients[piece.name].dim() - 1))
        for piece, part in zip(pieces, torch.split(values[: sum(lengths)], lengths), strict=True)
    }
    return parts, {piece.name: piece.offset for piece in pieces}
