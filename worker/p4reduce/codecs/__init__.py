"""How tensors become blocks of 32-bit words that can be added, and sums become tensors again."""

from __future__ import annotations

from typing import Protocol

from p4reduce.codecs.floats import Floats, Summed
from p4reduce.codecs.integers import Int32, Lanes
from p4reduce.codecs.raw import Gathered
from p4reduce.protocol.blocks import Blocks
from p4reduce.protocol.call import CodecId


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

    def bind(self, world_size: int, block_words: int, dense: bool) -> Blocks:
        """Check the data and cut it into blocks; raises InvalidTensorError before anything is sent.

        Their result is of the kind of tensor that was given. `dense`: blocks of zeros are sent too.
        """
        ...


__all__ = ["Floats", "Gathered", "Int32", "Lanes", "Segment", "Summed"]
