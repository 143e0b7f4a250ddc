"""The messages that carry a compressed gradient, in collectives.

`exchange.py` uses nothing more of a message than this:

    message.exchange(...)  yields a piece for a collective, receives its answer, may yield one for a second
                           collective, and returns the answer to the message
    Piece                  one parameter's piece of a segment; pieces of equal `segment_key` share one
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from p4reduce.codecs import Floats, Int32, Lanes, Segment, Summed
from p4reduce.codecs.coordinates import GatheredCoordinates, Part, RanksCoordinates
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire.lanes import lanes_per_word, narrowest

Bytes = NDArray[np.uint8]


class Form(StrEnum):
    """The form in which a compressed gradient is sent."""

    SUM = "sum"
    """Numbers at their places, added by the switch; a block in which no rank holds anything is left out."""
    GATHER = "gather"
    """Each rank's coordinates beside all others'; every rank adds them up itself."""
    SHARED = "shared"
    """The leader's choice of elements is sent once, then all ranks' values there are summed."""


MessageExchange = Generator["Piece", Any, Any]
"""The exchange of one message: yields pieces, receives their answers, returns the answer to the message."""


class Piece(ABC):
    """The data of one parameter in a segment of a collective; most messages are one piece."""

    order: ClassVar[int]
    """A collective has its segments by rising order, and those of equal order as they were added."""

    def exchange(self, owner: str, group: Lease) -> MessageExchange:
        """Exchange this piece as a message."""
        return (yield self)

    @property
    def segment_key(self) -> Hashable:
        """Equal for the pieces that share a segment."""
        return type(self)

    @classmethod
    @abstractmethod
    def segment(cls, pieces: Mapping[str, Self], owner: str, group: Lease) -> Segment:
        """Join these pieces, by parameter, to a segment. `owner` is the compressor's name, for error messages."""

    @classmethod
    @abstractmethod
    def answers(cls, pieces: Sequence[Self], result: Any, group: Lease) -> list[Any]:
        """Cut the answer to each piece from the segment's result."""


@dataclass(frozen=True)
class Dense(Piece):
    """All dense parameters of a bucket, without gaps. The answer is the mean of each, float32 [elements]."""

    order: ClassVar[int] = 0
    values: Mapping[str, torch.Tensor]  #: float32 [elements], by parameter

    @classmethod
    def segment(cls, pieces: Mapping[str, Dense], owner: str, group: Lease) -> Segment:
        values = {key: tensor for piece in pieces.values() for key, tensor in piece.values.items()}
        flat = torch.cat([*values.values()])
        return Floats(flat, mean=True, name=f"the dense gradients ({', '.join(values)})")

    @classmethod
    def answers(cls, pieces: Sequence[Dense], result: torch.Tensor, group: Lease) -> list[list[torch.Tensor]]:
        means = iter(torch.split(result, [tensor.numel() for piece in pieces for tensor in piece.values.values()]))
        return [[next(means) for _ in piece.values] for piece in pieces]


class Numbers(Piece):
    """Numbers of some bits. All parameters of one width share a segment, each from a block's start."""

    order: ClassVar[int] = 1
    values: torch.Tensor
    bits: int

    @property
    def segment_key(self) -> Hashable:
        return type(self), self.bits

    @staticmethod
    def joined(pieces: Mapping[str, Numbers], group: Lease) -> tuple[torch.Tensor, int]:
        """Return the values one after the other, each padded with zeros to whole blocks, and their bits."""
        bits = next(iter(pieces.values())).bits
        per_block, parts = _numbers_per_block(bits, group), list[torch.Tensor]()
        for piece in pieces.values():
            parts.append(piece.values)
            if missing := -piece.values.numel() % per_block:
                parts.append(piece.values.new_zeros(missing))
        return (torch.cat(parts) if len(parts) > 1 else parts[0]), bits

    @classmethod
    def answers(cls, pieces: Sequence[Self], result: torch.Tensor, group: Lease) -> list[Any]:
        """Return the part of the answer to `joined` that belongs to each piece."""
        sizes, per_block = [piece.values.numel() for piece in pieces], _numbers_per_block(pieces[0].bits, group)
        wholes = torch.split(result, [-(-size // per_block) * per_block for size in sizes])
        return [whole[:size] for whole, size in zip(wholes, sizes, strict=True)]


@dataclass(frozen=True)
class Integers(Numbers):
    """Integers times a unit that is the same on all ranks, in lanes. The answer is their int32 sums [elements]."""

    values: torch.Tensor  #: int8 or int32 [elements]
    bound: int  #: largest |value| of any rank, the same on all ranks
    unit: float  #: number that a value of 1 stands for; it is not sent
    bits: int = 0  #: bits of a lane, once the group is known

    def exchange(self, owner: str, group: Lease) -> MessageExchange:
        return (yield replace(self, bits=narrowest(group.world_size, self.bound)))

    @classmethod
    def segment(cls, pieces: Mapping[str, Integers], owner: str, group: Lease) -> Segment:
        flat, bits = cls.joined(pieces, group)
        bound = max(piece.bound for piece in pieces.values())
        return Lanes(flat, bits, bound=bound, name=f"{owner} of {', '.join(pieces)}")


@dataclass(frozen=True)
class Values(Numbers):
    """Floats in 8, 16 or 32 bits. The answer is a Summed: the mean, and what this rank sent of its own."""

    values: torch.Tensor  #: float32 [elements]
    bits: int = 32

    @classmethod
    def segment(cls, pieces: Mapping[str, Values], owner: str, group: Lease) -> Segment:
        flat, bits = cls.joined(pieces, group)
        return Floats(flat, bits, mean=True, name=f"{owner} of {', '.join(pieces)}", keep_sent=bits < 32)

    @classmethod
    def answers(cls, pieces: Sequence[Self], result: Any, group: Lease) -> list[Summed]:
        """Cut means and sent values. float32 is rounded so little that the sent values are the given ones."""
        cut = super().answers
        if isinstance(result, Summed):
            totals, sent = (cut(pieces, flat, group) for flat in result)
        else:
            totals, sent = cut(pieces, result, group), [piece.values for piece in pieces]
        return [Summed(*pair) for pair in zip(totals, sent, strict=True)]


@dataclass(frozen=True)
class Stream(Piece):
    """A rank's encoded coordinates of one parameter (codecs/coordinates.py). The answer is a RanksCoordinates.

    All of a rank's bytes lie one parameter after the other in one segment, the choices of leaders among them.
    """

    order: ClassVar[int] = 2
    data: Bytes  #: encoded coordinates; no bytes where another rank is the sender
    part: Part

    @classmethod
    def segment(cls, pieces: Mapping[str, Stream], owner: str, group: Lease) -> Segment:
        parts = [piece.part for piece in pieces.values()]
        return GatheredCoordinates(parts, [piece.data for piece in pieces.values()], group.rank)

    @classmethod
    def answers(cls, pieces: Sequence[Stream], result: list[RanksCoordinates], group: Lease) -> list[RanksCoordinates]:
        return result


@dataclass(frozen=True)
class Support:
    """The leader's choice of elements, and this rank's values at them. The answer is an AtSupport."""

    data: Bytes  #: encoded choice on the leader, no bytes elsewhere
    part: Part  #: its sender is the leader
    values: torch.Tensor  #: float32 [elements]: those at the choice are sent
    bits: int  #: 8, 16 or 32, of a value

    def exchange(self, owner: str, group: Lease) -> MessageExchange:
        choice = yield Stream(self.data, self.part)
        indices = torch.from_numpy(choice.indices)
        summed = yield Values(self.values[indices], self.bits)
        return AtSupport(indices, summed.total, summed.sent)


Message = Piece | Support
"""The data that a rank sends of one parameter."""


class AtSupport(NamedTuple):
    """The result at the elements that the leader chose."""

    indices: torch.Tensor  #: int64 [chosen]
    mean: torch.Tensor  #: mean over the ranks, float32 [chosen]
    sent: torch.Tensor  #: this rank's own values, as they were rounded, float32 [chosen]


@dataclass(frozen=True)
class RankMetadata(Piece):
    """A few floats of this rank, of one parameter. The answer is those of all ranks, float32 [world_size, metadata]."""

    order: ClassVar[int] = 3
    values: tuple[float, ...]

    @classmethod
    def segment(cls, pieces: Mapping[str, RankMetadata], owner: str, group: Lease) -> Segment:
        own = np.array([value for piece in pieces.values() for value in piece.values], np.float32)
        rows = np.zeros((group.world_size, len(own)), np.float32)
        rows[group.rank] = own
        # As bits, each in a word that no other rank holds: exact copies, whatever lies beside them in the block.
        return Int32(rows.view(np.int32), name="the metadata of " + ", ".join(pieces))

    @classmethod
    def answers(
        cls, pieces: Sequence[RankMetadata], result: NDArray[np.int32], group: Lease
    ) -> list[NDArray[np.float32]]:
        ends = np.cumsum([len(piece.values) for piece in pieces])[:-1]
        return list(np.split(result.view(np.float32), ends, axis=1))


def _numbers_per_block(bits: int, group: Lease) -> int:
    return group.block_words * lanes_per_word(bits)
