"""The form sum: numbers at their places, added by the switch; a block in which no rank holds anything is left out.

All parameters of one lane width or value width share a segment, one after the other, each from a block's start.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from p4reduce.codecs import Floats, Lanes, Segment, Summed
from p4reduce.compressors.forms.interface import MessageExchange, Piece
from p4reduce.errors import LaneOverflowError
from p4reduce.group import Group
from p4reduce_contracts.wire.lanes import check_lanes, check_width, lanes_per_word, narrowest


@dataclass(frozen=True)
class Integers:
    """Integers times a unit that is the same on all ranks. The answer is their int32 sums [elements]."""

    values: torch.Tensor  #: int8 or int32 [elements]
    bound: int  #: no rank's |value| is larger; the same on all ranks
    unit: float  #: what a value stands for; it is not sent

    def exchange(self, owner: str, group: Group) -> MessageExchange:
        return (yield IntegersPiece(self.values, lane_width(self.bound, group, owner), self.bound))


@dataclass(frozen=True)
class Values:
    """Floats in 8, 16 or 32 bits. The answer is a Summed: the mean, and what this rank sent of its own."""

    values: torch.Tensor  #: float32 [elements]
    bits: int = 32

    def exchange(self, owner: str, group: Group) -> MessageExchange:
        return (yield ValuesPiece(self.values, self.bits))


@dataclass(frozen=True)
class IntegersPiece(Piece):
    """One parameter's integers, in lanes of `bits` bits."""

    order: ClassVar[int] = 1
    values: torch.Tensor
    bits: int
    bound: int

    @property
    def segment_key(self) -> Hashable:
        return type(self), self.bits

    @classmethod
    def segment(cls, pieces: Mapping[str, IntegersPiece], owner: str, group: Group) -> Segment:
        bits = next(iter(pieces.values())).bits
        flat = _joined([piece.values for piece in pieces.values()], numbers_per_block(bits, group))
        bound = max(piece.bound for piece in pieces.values())
        return Lanes(flat, bits, bound=bound, name=f"{owner} of {', '.join(pieces)}")

    @classmethod
    def answers(cls, pieces: Sequence[IntegersPiece], result: torch.Tensor, group: Group) -> list[torch.Tensor]:
        return _cut(result, [piece.values.numel() for piece in pieces], numbers_per_block(pieces[0].bits, group))


@dataclass(frozen=True)
class ValuesPiece(Piece):
    """One parameter's floats, in `bits` bits each."""

    order: ClassVar[int] = 1
    values: torch.Tensor
    bits: int

    @property
    def segment_key(self) -> Hashable:
        return type(self), self.bits

    @classmethod
    def segment(cls, pieces: Mapping[str, ValuesPiece], owner: str, group: Group) -> Segment:
        bits = next(iter(pieces.values())).bits
        flat = _joined([piece.values for piece in pieces.values()], numbers_per_block(bits, group))
        return Floats(flat, bits, mean=True, name=f"{owner} of {', '.join(pieces)}", keep_sent=bits < 32)

    @classmethod
    def answers(cls, pieces: Sequence[ValuesPiece], result: Any, group: Group) -> list[Summed]:
        """Cut both; as float32 nothing worth keeping was rounded away, so what was sent is what was given."""
        given = [piece.values for piece in pieces]
        sizes, per_block = [values.numel() for values in given], numbers_per_block(pieces[0].bits, group)
        if not isinstance(result, Summed):
            return [Summed(*pair) for pair in zip(_cut(result, sizes, per_block), given, strict=True)]
        totals, sent = (_cut(flat, sizes, per_block) for flat in result)
        return [Summed(*pair) for pair in zip(totals, sent, strict=True)]


def numbers_per_block(bits: int, group: Group) -> int:
    """Return how many lanes or values of `bits` bits a block holds."""
    return group.block_words * lanes_per_word(bits)


def lane_width(bound: int, group: Group, owner: str) -> int:
    """Return the bits of a lane: the group's, or the narrowest that does.

    Raises LaneOverflowError, in the name of the compressor `owner`, when the ranks' integers of up to `bound` do not
    fit.
    """
    if group.lane_bits:
        check_width(group.lane_bits)
        check_lanes(group.world_size, bound, group.lane_bits, f"{owner} in job {group.name!r}")
    if bound > group.lane_bound and (group.lane_bits or group.lane_bound > 1):
        raise LaneOverflowError(
            f"{owner} sends integers up to {bound}, and job {group.name!r} was created for |t| <= "
            f"{group.lane_bound}: create it with --lane-bound {bound}"
        )
    return group.lane_bits or narrowest(group.world_size, bound)


def _joined(tensors: Sequence[torch.Tensor], per_block: int) -> torch.Tensor:
    """Join them one after the other, each padded with zeros to whole blocks."""
    parts: list[torch.Tensor] = []
    for tensor in tensors:
        parts.append(tensor)
        if missing := -tensor.numel() % per_block:
            parts.append(tensor.new_zeros(missing))
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def _cut(flat: torch.Tensor, sizes: Sequence[int], per_block: int) -> list[torch.Tensor]:
    """Return the tensors that `_joined` put together."""
    wholes = torch.split(flat, [-(-size // per_block) * per_block for size in sizes])
    return [whole[:size] for whole, size in zip(wholes, sizes, strict=True)]
