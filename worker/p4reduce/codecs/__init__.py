"""How tensors become blocks of 32-bit words that can be added, and sums become tensors again."""

from __future__ import annotations

from typing import Any, Protocol

from p4reduce.codecs.floats import Floats, Summed
from p4reduce.codecs.int32 import Int32
from p4reduce.codecs.lanes import Lanes
from p4reduce.codecs.raw import Gathered
from p4reduce.protocol.call import CodecId
from p4reduce.protocol.source import Array, BlockSource


class Segment(Protocol):
    """A tensor together with its codec: what all_reduce_segments takes."""

    @property
    def codec(self) -> CodecId: ...

    @property
    def detail(self) -> int:
        """One byte the ranks must agree on, e.g. the width of a lane."""
        ...

    @property
    def elements(self) -> int: ...

    @property
    def layout(self) -> str:
        """Codec and length as text; the ranks must agree on it."""
        ...

    def bind(self, world_size: int, block_words: int, dense: bool) -> BlockSource:
        """Check the data and cut it into blocks; raises InvalidTensorError before anything is sent."""
        ...

    def wrap(self, result: Array) -> Any:
        """The result as the kind of tensor that was given."""
        ...


__all__ = ["Floats", "Gathered", "Int32", "Lanes", "Segment", "Summed"]
