"""A collective's data as blocks of words: the tensors that it consists of, and where the kernels find each of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p4reduce.errors import InvalidTensorError
from p4reduce.protocol.state import FLOAT32, FORMATS, MOST_LANES, UNTOUCHED, PartLayout
from p4reduce_contracts.wire.numbers import MAX_BLOCKS
from p4reduce_runtime.records import zeros

Array = NDArray[Any]
"""Elements of any type."""
Words = Array
"""32-bit words, shape [blocks, block_words]; big-endian when they are to be sent."""

ANY_SUM = 1 << 31
"""The value of `largest_sum` where a word of the sum may have any value."""

NO_WORDS: Final = np.zeros(0, np.uint32)
_ONES: Final = np.ones(256)
_NO_HOLDERS: Final = np.zeros(0, np.uint64)
_NO_BEGINS: Final = np.zeros(0, np.int64)


@dataclass(eq=False)
class Part:
    """One tensor, bound to the block size and the number of ranks of a lease.

    Block b holds the elements from b // step · block_words · max(1, lanes) on; what lies beyond the last one is zero.
    """

    values: NDArray[np.uint32]
    """The data as it lies in memory, flat and C-contiguous. 16-bit numbers lie there two by two."""
    block_words: int
    nonzero: NDArray[np.bool_]
    """[blocks]: those that this rank holds; the others count as zero and are never encoded."""
    exponents: NDArray[np.uint8]
    """[blocks]: the exponent that each needs, 0 to 254; integers use 0."""
    finish: Callable[[Part, NDArray[np.uint32], NDArray[np.uint8]], Any]
    """Makes the result of this part, its sums, flat, and the exponents agreed for its blocks. Sums are words, zero in
    blocks that no rank held; where there are `units`, numbers of its form, of the blocks in `kept` alone."""
    step: int = 1
    lanes: int = 0
    """Numbers that a word holds, each `rint(number · scale)` in 32 / lanes bits; 0: the elements are the words."""
    form: int = FLOAT32
    """The format of the numbers in memory (state.py)."""
    count: int = 0
    """Number of numbers in `values`."""
    levels: int = 0
    """The largest absolute value of a number in its lane, where a word has several lanes."""
    scales: NDArray[np.float64] | None = None
    """[256]: the scale for each agreed exponent."""
    units: NDArray[np.float64] | None = None
    """[256]: the factor, by agreed exponent, that makes a number of the result of a sum of integers."""
    make_room: Callable[[], Array] | None = None
    """Returns, where there are units, the memory of the result, flat and as long as `values`, with zeros in all blocks
    that this rank does not hold. It may be that of `values`: a block is encoded before its sum comes back. None: new
    memory."""
    clears: bool = False
    """Whether `finish` does without zeros in `sums` where no rank held a block: most of the space may be so."""
    in_place: bool = False
    """Whether the result belongs in the memory of `values`."""
    span: tuple[int, int] | None = None
    """The begin and end of the numbers whose sums are kept, where there are units; None: all."""
    largest_sum: int = ANY_SUM
    """No summed word has a larger absolute value, read as a signed number: one that has was damaged."""

    @property
    def kept(self) -> tuple[int, int]:
        """The span of blocks whose sums are kept where they become numbers."""
        if self.span is None:
            return 0, len(self.nonzero)
        begin, end = self.span
        per_block = self.block_words * self.lanes
        return (begin // per_block, -(-end // per_block)) if begin < end else (0, 0)

    def sent(self, exponents: NDArray[np.uint8], into: NDArray[np.uint32] | None = None) -> NDArray[np.uint32]:
        """Return what this rank has sent, as numbers of its form: each block is encoded, and decoded.

        They are written to `into`, of zeros and with room for whole blocks, where there is one.
        """
        layout, touched = Layout(Blocks([self])), np.flatnonzero(exponents != UNTOUCHED)
        sent = np.zeros(layout.sums_words, np.uint32) if into is None else into
        words = layout.encode(touched, exponents[touched])
        layout.decode(words, 1.0 / layout.scales, touched, exponents[touched], sent)  # no scale is zero (formats.py)
        return sent


class Blocks:
    """One rank's data in a collective: its parts, one after the other in one space of blocks."""

    def __init__(self, parts: Sequence[Part] = ()) -> None:
        """Raises InvalidTensorError when the blocks are more than a key can number. Without parts no data is moved."""
        self.parts = parts
        self.starts = [0, *itertools.accumulate(len(part.nonzero) for part in parts)]
        """The first block of each part, and the number of all."""
        self.n_blocks = self.starts[-1]
        if self.n_blocks > MAX_BLOCKS:
            raise InvalidTensorError(
                f"{self.n_blocks} blocks, more than the {MAX_BLOCKS} of a collective: split the tensor"
            )
        self.nonzero: NDArray[np.bool_] = _joined([part.nonzero for part in parts], np.bool_)
        self.exponents: NDArray[np.uint8] = _joined([part.exponents for part in parts], np.uint8)
        for part, begin, end in zip(parts, self.starts, self.starts[1:], strict=False):
            part.nonzero, part.exponents = self.nonzero[begin:end], self.exponents[begin:end]
        self.holders: NDArray[np.uint64] = _NO_HOLDERS
        """[blocks]: which ranks of this host hold each, as a bitmap, where the data is that of several (hosts/)."""
        self.published: NDArray[np.uint64] = _NO_HOLDERS
        """[ranks of this host]: how many blocks of its data each has published; other processes change it."""
        self.begins: NDArray[np.int64] = _NO_BEGINS
        """[ranks of this host]: the word of the host's memory where each rank's data begins."""
        self.kept: Any = None
        """What a path has made of these blocks, for the next collective with them."""
        self._layout: Layout | None = None
        self.copy: Callable[[Any], float] | None = None
        """A function that gets the collective now and then, copies data, and returns the seconds to its next call."""

    def layout(self, *, keep_words: bool = False) -> Layout:
        """Return where the data lies, and where its sums belong; see `Layout`. It is kept for the next call alike."""
        if self._layout is None or self._layout.keeps_words != keep_words:
            self._layout = Layout(self, keep_words=keep_words)
        return self._layout

    def encode(self, blocks: NDArray[np.int64], exponents: NDArray[np.uint8]) -> Words:
        """Return the words of these blocks, with the exponents that the ranks agreed on; big-endian."""
        return Layout(self).encode(blocks, exponents).view(">u4")

    def decode(self, sums: Words, exponents: NDArray[np.uint8]) -> list[Any]:
        """Return the results of summed words, [n_blocks, block_words], and the exponents agreed on, [n_blocks].

        The words are big-endian or in this machine's order, as their type says.
        """
        if not self.parts:
            return []
        layout, touched = Layout(self), np.flatnonzero(exponents != UNTOUCHED)
        room = np.zeros(layout.sums_words, np.uint32)
        rows = sums if len(touched) == len(sums) and sums.flags.aligned else sums[touched]
        words = rows.astype(sums.dtype.newbyteorder(">"), copy=False).view(np.uint32)
        layout.decode(words, layout.units, touched, exponents[touched], room)
        return layout.finish(room, exponents)


class Layout:
    """The places of a collective's data, and of its sums, for the kernels: one array each, and a table."""

    def __init__(self, blocks: Blocks, *, keep_words: bool = False) -> None:
        """`keep_words`: all sums stay words; else they are stored as numbers where a part has units."""
        self.parts = parts = blocks.parts
        self._starts = blocks.starts
        self.keeps_words = keep_words
        self.scales = _by_exponent([part.scales for part in parts])
        self.units = _by_exponent([part.units for part in parts])
        """[parts, 256], by exponent: the factors that make a word of a number, and back."""
        self.table = zeros(PartLayout, len(parts))
        self.sums_ends: list[int] = []
        self.words_per_block: list[int] = []
        """Words of `sums` up to the end of each part's own, and words of one block of each part."""
        word_end = sums_begin = 0
        for row, part in enumerate(parts):
            begin, word_end = word_end, word_end + len(part.values)
            end = word_end
            shift = FORMATS[part.form].word_shift
            if shift:
                begin, end = begin << shift, (begin << shift) + part.count
            decodes = part.units is not None and not keep_words
            words, (first, last) = part.block_words, part.kept if decodes else (0, len(part.nonzero))
            if decodes:
                words = words * part.lanes >> shift
            data = (self._starts[row], begin, end, part.step, part.lanes, part.form, shift, part.levels, decodes)
            self.table[row] = data + (part.largest_sum, sums_begin - first * words, first, last, 0)
            sums_begin += (last - first) * words
            self.sums_ends.append(sums_begin)
            self.words_per_block.append(words)

    @property
    def elements(self) -> NDArray[np.uint32]:
        """The data that the parts have now: itself where there is one part, else a copy of all parts'; read-only."""
        data = [part.values for part in self.parts]
        elements = data[0][:] if len(data) == 1 else _joined(data, np.uint32)
        elements.flags.writeable = False
        return elements

    @property
    def sums_words(self) -> int:
        """Words of all sums."""
        return self.sums_ends[-1] if self.parts else 0

    def make_room(self, dense: bool) -> NDArray[np.uint32]:
        """Return memory for the sums, flat, zero where no sum comes; the last block may find less room than a block.

        `dense`: this rank holds all blocks, so that a sum comes for each.
        """
        if len(self.parts) == 1 and self.table["decodes"][0]:
            make_room = self.parts[0].make_room
            if make_room is not None:
                return make_room().view(np.uint32)
        if not dense and (self.keeps_words or not any(part.clears for part in self.parts)):
            return np.zeros(self.sums_words, np.uint32)
        room = np.empty(self.sums_words, np.uint32)
        for part, begin, end in zip(self.parts, [0, *self.sums_ends], self.sums_ends, strict=False):
            if not dense and not part.clears:
                room[begin:end] = 0
        return room

    def encode(self, blocks: NDArray[np.int64], exponents: NDArray[np.uint8]) -> NDArray[np.uint32]:
        """Return the words of these blocks, [blocks, block_words], in the order of bytes of a frame."""
        import p4reduce.protocol.blocks_kernels as kernels

        table, size = self.table, self.parts[0].block_words
        words, spare, weights = np.empty((len(blocks), size), np.uint32), _spare(size), np.zeros(size, np.uint32)
        kernels.encode_blocks(table, self.elements, self.scales, blocks, exponents, weights, spare, words)
        return words

    def decode(self, words: Array, units: Array, blocks: Array, exponents: Array, sums: Array) -> None:
        """Write the numbers of these blocks' words into `sums`; `units` [parts, 256]."""
        import p4reduce.protocol.blocks_kernels as kernels

        table, spare = self.table, _spare(self.parts[0].block_words)
        kernels.decode_blocks(table, words, units, blocks, exponents, spare, sums)

    def finish(self, sums: NDArray[np.uint32], exponents: NDArray[np.uint8]) -> list[Any]:
        """Return the result of each part. `sums` is what `make_room` returned, where words are not kept."""
        ends, starts = [0, *self.sums_ends], self._starts
        return [
            part.finish(part, sums[ends[row] : ends[row + 1]], exponents[starts[row] : starts[row + 1]])
            for row, part in enumerate(self.parts)
        ]


def sum_blocks(sources: Sequence[Blocks], block_words: int) -> tuple[Words, NDArray[np.uint8]]:
    """Return what the switch would make of all ranks' blocks: summed words and agreed exponents, for `decode`."""
    exponents = np.full(sources[0].n_blocks, UNTOUCHED, np.uint8)
    held = np.logical_or.reduce([source.nonzero for source in sources])
    exponents[held] = np.max([np.where(s.nonzero, s.exponents, 0)[held] for s in sources], axis=0)
    sums = np.zeros((sources[0].n_blocks, block_words), np.uint32)
    for source in sources:
        blocks = np.flatnonzero(source.nonzero)
        if len(blocks):
            sums[blocks] += source.encode(blocks, exponents[blocks]).view(">u4").astype(np.uint32)
    return sums.view(np.int32).astype(">i4"), exponents


def nonzero_blocks(words: NDArray[np.uint32], block_words: int) -> NDArray[np.bool_]:
    """Return which blocks of words, the last perhaps shorter, are not all zero."""
    whole = len(words) // block_words
    found = np.asarray(words[: whole * block_words].reshape(whole, block_words).any(axis=1))
    rest = words[whole * block_words :]
    return np.append(found, rest.any()) if len(rest) else found


def _joined(arrays: Sequence[Array], kind: type[np.generic]) -> Array:
    """Return the arrays one after the other; of one, itself."""
    return arrays[0] if len(arrays) == 1 else np.concatenate([*arrays, np.zeros(0, kind)])


def _by_exponent(tables: Sequence[NDArray[np.float64] | None]) -> NDArray[np.float64]:
    """Return the tables of all parts, [parts, 256]; of one that has none, ones."""
    rows = [_ONES if table is None else table for table in tables]
    return rows[0].reshape(1, 256) if len(rows) == 1 else np.array(rows).reshape(len(rows), 256)


def _spare(block_words: int) -> NDArray[np.float32]:
    return np.empty((MOST_LANES + 1) * block_words, np.float32)
