"""Whole gradients as float32: what is not compressed, all of a bucket's in one segment without gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from p4reduce.codecs import Float32, Segment
from p4reduce.compressors.forms.interface import Blocks, MessageExchange, Piece
from p4reduce.group import Group


@dataclass(frozen=True)
class Dense:
    """A whole gradient. The answer is the mean over the ranks, float32 [elements]."""

    values: torch.Tensor  #: float32 [elements]

    def exchange(self, owner: str, group: Group) -> MessageExchange:
        return (yield DensePiece(self.values))


@dataclass(frozen=True)
class DensePiece(Piece):
    """One dense parameter."""

    order: ClassVar[int] = 0
    values: torch.Tensor

    @classmethod
    def segment(cls, pieces: Mapping[str, DensePiece], owner: str, group: Group) -> Segment:
        flat = torch.cat([piece.values for piece in pieces.values()])
        return Float32(flat, mean=True, name=f"the dense gradients ({', '.join(pieces)})")

    @classmethod
    def answers(cls, pieces: Sequence[DensePiece], result: torch.Tensor, group: Group) -> list[torch.Tensor]:
        return list(torch.split(result, [piece.values.numel() for piece in pieces]))


def dense_blocks(elements: int, group: Group) -> Blocks:
    """Return the blocks of `elements` dense elements."""
    return Blocks(float(-(-elements // group.block_words)))
