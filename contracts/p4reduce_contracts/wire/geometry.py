"""The shape of a frame."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from p4reduce_contracts.errors import GeometryMismatchError
from p4reduce_contracts.wire.numbers import BASE, BASE_BYTES, GUARD_BYTES, MAX_COLUMNS
from p4reduce_contracts.wire.opening import most_ranks


@dataclass(frozen=True)
class Geometry:
    """The frame shape a P4 program was compiled with: columns in a frame, 32-bit words in a block.

    Raises GeometryMismatchError for a shape that no frame can have.
    """

    columns: int
    block_words: int

    def __post_init__(self) -> None:
        if not 1 <= self.columns <= MAX_COLUMNS:
            raise GeometryMismatchError(f"a frame has 1 to {MAX_COLUMNS} columns, not {self.columns}")
        if self.block_words < 4 or self.block_words % 4:
            raise GeometryMismatchError(f"a block has a multiple of 4 words, not {self.block_words}")

    @cached_property
    def header(self) -> struct.Struct:
        return struct.Struct(f"{BASE.format}QIHH{self.columns}I")

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Bytes of a frame, by the bitmap of its columns that have blocks."""
        return tuple(self.frame_header_bytes + self.block_bytes * mask.bit_count() for mask in range(256))

    @cached_property
    def block_bytes(self) -> int:
        return 4 * self.block_words

    @cached_property
    def frame_header_bytes(self) -> int:
        """Bytes of a frame without blocks."""
        return BASE_BYTES + GUARD_BYTES + 4 * self.columns

    @property
    def frame_words(self) -> int:
        """Words of all the blocks of a full frame."""
        return self.columns * self.block_words

    @property
    def max_frame_bytes(self) -> int:
        return self.frame_header_bytes + self.columns * self.block_bytes

    @property
    def max_world_size(self) -> int:
        """The most ranks of one job: their calls are described in a full opening frame (wire/opening.py)."""
        return most_ranks(self.frame_words)


DEFAULT: Final = Geometry(8, 32)
JUMBO: Final = Geometry(8, 256)
"""The geometry for networks with an MTU of 9,000 bytes."""
SMALL: Final = Geometry(4, 8)
