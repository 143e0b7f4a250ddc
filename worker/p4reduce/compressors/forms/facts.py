"""Facts: a few floats of every rank, each rank's in a row of its own, so that all learn all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs import Int32, Segment
from p4reduce.compressors.forms.interface import Journey, Piece
from p4reduce.group import Group


@dataclass(frozen=True)
class Facts:
    """This rank's facts of one parameter. The answer is those of all ranks, float32 [world_size, facts]."""

    values: tuple[float, ...]

    def travel(self, owner: str, group: Group) -> Journey:
        return (yield FactsPiece(self.values))


@dataclass(frozen=True)
class FactsPiece(Piece):
    """One parameter's facts."""

    order: ClassVar[int] = 3
    values: tuple[float, ...]

    @classmethod
    def segment(cls, pieces: Mapping[str, FactsPiece], owner: str, group: Group) -> Segment:
        own = np.array([value for piece in pieces.values() for value in piece.values], np.float32)
        rows = np.zeros((group.world_size, len(own)), np.float32)
        rows[group.rank] = own
        # As bits, each in a word that no other rank holds: exact copies, whatever lies beside them in the block.
        return Int32(rows.view(np.int32), name="the facts of " + ", ".join(pieces))

    @classmethod
    def answers(
        cls, pieces: Sequence[FactsPiece], result: NDArray[np.int32], group: Group
    ) -> list[NDArray[np.float32]]:
        ends = np.cumsum([len(piece.values) for piece in pieces])[:-1]
        return list(np.split(result.view(np.float32), ends, axis=1))


def payload_bytes(facts: int, group: Group) -> int:
    """Return the bytes down of a parameter's facts."""
    return 4 * group.world_size * facts
