"""A collective's data and the place of its sums, as the kernels see them: one array each, and a table of the parts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from p4reduce.protocol.source import Array, BlockSource, ConcatenatedBlocks, FlatSource
from p4reduce.protocol.state import FLOAT32, Segment
from p4reduce_runtime.records import zeros


class Segments:
    """The parts of a source, one after the other.

    `elements` is the data itself where there is one part, else a copy of all parts'; read-only.
    """

    def __init__(self, whole: BlockSource, block_words: int, *, floats: bool = True) -> None:
        """`floats`: sums of parts that have units are made floats when they are stored; else all stay words."""
        parts = cast(list[FlatSource], whole.parts if isinstance(whole, ConcatenatedBlocks) else [whole])
        self._block_words = block_words
        self.n_blocks = whole.n_blocks
        self.nonzero, self.exponents = whole.nonzero, whole.exponents
        self._parts = parts
        self._starts = [0, *itertools.accumulate(part.n_blocks for part in parts)]
        data = [part.elements.values.view(np.uint32) for part in parts]
        self.elements: NDArray[np.uint32] = (
            data[0][:] if len(data) == 1 else np.concatenate([*data, np.zeros(0, np.uint32)])
        )
        self.elements.flags.writeable = False
        self.table = zeros(Segment, len(parts))
        self.scales = _by_exponent([part.elements.scales for part in parts])
        self.units = _by_exponent([part.elements.units for part in parts])
        """[parts, 256], by exponent: what a number is multiplied by to become a word, and back."""
        self._decodes = [floats and part.elements.units is not None for part in parts]
        self._kept: list[tuple[int, int]] = []
        """Of each part the span of blocks, counted from its first one, whose sums have a place."""
        word_end = sums_begin = 0
        self._sums_ends: list[int] = []
        for row, part in enumerate(parts):
            elements = part.elements
            begin, word_end = word_end, word_end + len(data[row])
            end = word_end
            if elements.form != FLOAT32:
                begin, end = 2 * begin, 2 * begin + elements.count
            words = self._words_per_block(row)
            first, last = self._kept_of(row)
            self._kept.append((first, last))
            self.table[row] = (
                *(self._starts[row], begin, end, elements.step, elements.lanes, elements.form, elements.levels),
                *(self._decodes[row], elements.largest_sum, sums_begin - first * words, first, last),
            )
            sums_begin += (last - first) * words
            self._sums_ends.append(sums_begin)

    def make_room(self, dense: bool) -> NDArray[np.uint32]:
        """Return memory for the sums, flat, zero where no sum comes; the last block may find less room than a block.

        `dense`: this rank holds all blocks, so that a sum comes for each.
        """
        if len(self._parts) == 1 and self._decodes[0]:
            make_room = self._parts[0].elements.make_room
            if make_room is not None:
                return make_room().view(np.uint32)
        new = np.empty if dense else np.zeros
        return new(self.sums_words, np.uint32)

    @property
    def sums_words(self) -> int:
        """How many words all sums take."""
        return self._sums_ends[-1] if self._parts else 0

    def decode(self, sums: NDArray[np.uint32], exponents: NDArray[np.uint8]) -> list[Array]:
        """Return the summed tensors. `sums` is what `make_room` returned: words, or numbers, see `floats`."""
        found: list[Array] = []
        begin = 0
        for row, (part, end) in enumerate(zip(self._parts, self._sums_ends, strict=True)):
            own, agreed = sums[begin:end], exponents[self._starts[row] : self._starts[row + 1]]
            if self._decodes[row]:
                found += part.shaped(own, agreed)
            else:
                found += part.decode(own.reshape(-1, self._block_words), agreed)
            begin = end
        return found

    def _kept_of(self, row: int) -> tuple[int, int]:
        """Return the span of blocks of a part, counted from its first one, whose sums have a place."""
        part = self._parts[row]
        numbers = part.elements.part
        if not self._decodes[row] or numbers is None:
            return 0, part.n_blocks
        begin, end = numbers
        per_block = self._block_words * part.elements.lanes
        return (begin // per_block, -(-end // per_block)) if begin < end else (0, 0)

    def _words_per_block(self, row: int) -> int:
        """Return how many words of the sums' memory a block of part `row` takes."""
        elements = self._parts[row].elements
        if not self._decodes[row]:
            return self._block_words
        return self._block_words * elements.lanes // (1 if elements.form == FLOAT32 else 2)


_ONES: Final = np.ones(256)


def _by_exponent(tables: Sequence[NDArray[np.float64] | None]) -> NDArray[np.float64]:
    """Return the tables of all parts, [parts, 256]; of one that has none, ones."""
    rows = [_ONES if table is None else table for table in tables]
    return rows[0].reshape(1, 256) if len(rows) == 1 else np.array(rows).reshape(len(rows), 256)
