"""Metadata of the ranks: a few floats of each, in a row per rank, so that every rank receives all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs import Int32, Segment
from p4reduce.compressors.forms.interface import MessageExchange, Piece
from p4reduce.group import Group


@dataclass(frozen=True)
class RankMetadata:
    """This rank's metadata of one parameter. The answer is those of all ranks, float32 [world_size, metadata]."""

    values: tuple[float, ...]

    def exchange(self, owner: str, group: Group) -> MessageExchange:
        return (yield RankMetadataPiece(self.values))


@dataclass(frozen=True)
class RankMetadataPiece(Piece):
    """One parameter's metadata."""

    order: ClassVar[int] = 3
    values: tuple[float, ...]

    @classmethod
    def segment(cls, pieces: Mapping[str, RankMetadataPiece], owner: str, group: Group) -> Segment:
        own = np.array([value for piece in pieces.values() for value in piece.values], np.float32)
        rows = np.zeros((group.world_size, len(own)), np.float32)
        rows[group.rank] = own
        # As bits, each in a word that no other rank holds: exact copies, whatever lies beside them in the block.
        return Int32(rows.view(np.int32), name="the metadata of " + ", ".join(pieces))

    @classmethod
    def answers(
        cls, pieces: Sequence[RankMetadataPiece], result: NDArray[np.int32], group: Group
    ) -> list[NDArray[np.float32]]:
        ends = np.cumsum([len(piece.values) for piece in pieces])[:-1]
        return list(np.split(result.view(np.float32), ends, axis=1))
