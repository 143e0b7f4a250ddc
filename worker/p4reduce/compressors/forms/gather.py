"""The form gather: each rank's coordinates beside all others'; every rank adds them up itself.

All of a rank's bytes lie one parameter after the other in one segment, the leaders' choices of the form shared among
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs import Segment
from p4reduce.codecs.coordinates import GatheredCoordinates, Part, RanksCoordinates
from p4reduce.compressors.forms.interface import MessageExchange, Piece
from p4reduce.group import Group

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Stream:
    """This rank's encoded coordinates (codecs/coordinates.py). The answer is a RanksCoordinates: all ranks'."""

    data: Bytes
    part: Part  #: every rank sends: its `sender` is None

    def exchange(self, owner: str, group: Group) -> MessageExchange:
        return (yield CoordinatesPiece(self.data, self.part))


@dataclass(frozen=True)
class CoordinatesPiece(Piece):
    """One parameter's coordinates, no bytes where another rank is the sender."""

    order: ClassVar[int] = 2
    data: Bytes
    part: Part

    @classmethod
    def segment(cls, pieces: Mapping[str, CoordinatesPiece], owner: str, group: Group) -> Segment:
        parts = [piece.part for piece in pieces.values()]
        return GatheredCoordinates(parts, [piece.data for piece in pieces.values()], group.rank)

    @classmethod
    def answers(
        cls, pieces: Sequence[CoordinatesPiece], result: list[RanksCoordinates], group: Group
    ) -> list[RanksCoordinates]:
        return result
