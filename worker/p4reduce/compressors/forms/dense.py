"""Whole gradients as float32: what is not compressed, all of a bucket's in one segment without gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from p4reduce.codecs import Floats, Segment
from p4reduce.compressors.forms.interface import MessageExchange, Piece
from p4reduce.group import Group


@dataclass(frozen=True)
class Dense:
    """Whole gradients. The answer is the mean over the ranks of each, float32 [elements]."""

    values: Mapping[str, torch.Tensor]  #: float32 [elements], by parameter

    def exchange(self, owner: str, group: Group) -> MessageExchange:
        return (yield DensePiece(self.values))


@dataclass(frozen=True)
class DensePiece(Piece):
    """All dense parameters of a bucket."""

    order: ClassVar[int] = 0
    values: Mapping[str, torch.Tensor]

    @classmethod
    def segment(cls, pieces: Mapping[str, DensePiece], owner: str, group: Group) -> Segment:
        values = {key: tensor for piece in pieces.values() for key, tensor in piece.values.items()}
        flat = torch.cat([*values.values()])
        return Floats(flat, mean=True, name=f"the dense gradients ({', '.join(values)})")

    @classmethod
    def answers(cls, pieces: Sequence[DensePiece], result: torch.Tensor, group: Group) -> list[list[torch.Tensor]]:
        means = iter(torch.split(result, [tensor.numel() for piece in pieces for tensor in piece.values.values()]))
        return [[next(means) for _ in piece.values] for piece in pieces]
