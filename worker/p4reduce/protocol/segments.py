"""A collective's data and the place of its sums, as the kernels see them: one array each, and a table of the parts."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from p4reduce.protocol.source import Array, BlockSource, ConcatenatedBlocks, FlatSource
from p4reduce.protocol.state import Segment
from p4reduce_runtime.records import zeros


class Segments:
    """The parts of a source, one after the other.

    `elements` is the data itself where there is one part, else a copy of all parts'; read-only.
    """

    def __init__(self, whole: BlockSource, *, floats: bool = True) -> None:
        """`floats`: sums of parts that have units are made floats when they are stored; else all stay words."""
        parts = cast(list[FlatSource], whole.parts if isinstance(whole, ConcatenatedBlocks) else [whole])
        self._floats = floats
        self.n_blocks = whole.n_blocks
        self.nonzero, self.exponents = whole.nonzero, whole.exponents
        self.dense = bool(self.nonzero.all())
        """Whether this rank holds all blocks, so that a sum comes for each."""
        self._parts = parts
        self._starts = np.cumsum([0] + [part.n_blocks for part in parts])
        data = [part.elements.values.view(np.uint32) for part in parts]
        self.elements: NDArray[np.uint32] = (
            data[0][:] if len(data) == 1 else np.concatenate([*data, np.zeros(0, np.uint32)])
        )
        self.elements.flags.writeable = False
        self.table = zeros(Segment, len(parts))
        self.scales, self.units = np.ones((len(parts), 256)), np.ones((len(parts), 256))
        """[parts, 256], by exponent: what a number is multiplied by to become a word, and back."""
        end = 0
        for row, part in enumerate(parts):
            elements = part.elements
            begin, end = end, end + len(data[row])
            decodes = floats and elements.units is not None
            place = self._starts[row], begin, end, elements.step
            self.table[row] = *place, elements.lanes, decodes, elements.largest_sum
            if elements.scales is not None:
                self.scales[row] = elements.scales
            if elements.units is not None:
                self.units[row] = elements.units

    def make_room(self, block_words: int) -> NDArray[np.uint32]:
        """Return memory for the sums, flat, zero where no sum comes; the last block may find less room than a block."""
        elements = self._parts[0].elements if len(self._parts) == 1 else None
        if self._floats and elements is not None and elements.units is not None and elements.make_room is not None:
            return elements.make_room().view(np.uint32)
        new = np.empty if self.dense else np.zeros
        return new(self.n_blocks * block_words, np.uint32)

    def decode(self, sums: NDArray[np.uint32], exponents: NDArray[np.uint8], block_words: int) -> list[Array]:
        """Return the summed tensors. `sums` is what `make_room` returned: words, or float32, see `floats`."""
        found: list[Array] = []
        for part, start, end in zip(self._parts, self._starts[:-1], self._starts[1:], strict=True):
            own = sums[start * block_words : end * block_words]
            if self._floats and part.elements.units is not None:
                found += part.shaped(own.view(np.float32))
            else:
                found += part.decode(own.reshape(-1, block_words), exponents[start:end])
        return found
