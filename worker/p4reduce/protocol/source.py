"""Where a collective's blocks come from, and where the sums go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from p4reduce.errors import InvalidTensorError
from p4reduce_contracts.wire import MAX_BLOCKS

Array = NDArray[Any]
"""Elements of any type."""
Words = Array
"""32-bit words, shape [blocks, block_words]; big-endian when they are to be sent."""

ANY_SUM = 1 << 31
"""As the largest sum of a word: it may have any value."""

UNTOUCHED = 255
"""In the agreed exponents: no rank held this block, its sum is zero."""


@dataclass(frozen=True)
class Elements:
    """A source's data as it lies in memory: what the kernels need to encode blocks.

    Block b holds the elements from b // step · block_words · max(1, lanes) on; what lies beyond the last one is zero.
    """

    values: Array
    """Flat, C-contiguous, 4 bytes each. 16-bit numbers lie there two by two."""
    step: int = 1
    lanes: int = 0
    """Floats that a word holds, each `rint(value · scale)` in 32 / lanes bits; 0: the elements are the words."""
    form: int = 0
    """The format of the floats (floats.py)."""
    count: int = 0
    """How many floats there are."""
    levels: int = 0
    """Where a word holds several: the largest absolute value of what one becomes."""
    scales: NDArray[np.float64] | None = None
    """[256], by agreed exponent."""
    units: NDArray[np.float64] | None = None
    """[256], by agreed exponent: what a sum of integers is multiplied by to become a number of the result. None:
    `decode` makes the result of the summed words."""
    make_room: Callable[[], Array] | None = None
    """Where there are units: returns the memory that the result belongs in, flat and as long as `values`, with zeros in
    all blocks that this rank does not hold. It may be that of `values`: a block is encoded before its sum comes back.
    None: any new memory."""
    part: tuple[int, int] | None = None
    """Where there are units: the span of numbers whose sums are kept, only in the blocks that have them; None: all."""
    largest_sum: int = ANY_SUM
    """No summed word has a larger absolute value, read as a signed number: one that has was damaged."""


class BlockSource(Protocol):
    """One rank's data as blocks of words; encodes whole batches of blocks at once."""

    @property
    def n_blocks(self) -> int: ...

    @property
    def nonzero(self) -> NDArray[np.bool_]:
        """[n_blocks]: the blocks this rank holds; the others count as zero and are never encoded."""
        ...

    @property
    def exponents(self) -> NDArray[np.uint8]:
        """[n_blocks]: the exponent each block needs, 0 to 254; integers use 0."""
        ...

    def encode(self, blocks: NDArray[np.int64], exponents: NDArray[np.uint8]) -> Words:
        """The words of these blocks, quantized with the exponents the ranks agreed on."""
        ...

    def decode(self, sums: Words, exponents: NDArray[np.uint8]) -> list[Array]:
        """The summed tensors. `sums` [n_blocks, block_words] is zero where `exponents` is UNTOUCHED.

        The words are big-endian or in this machine's order, as their type says.
        """
        ...


class FlatSource(BlockSource, Protocol):
    """A source whose data lies in one array: what a collective takes, by itself or as a part of ConcatenatedBlocks."""

    @property
    def elements(self) -> Elements: ...

    def shaped(self, sums: NDArray[np.uint32], exponents: NDArray[np.uint8]) -> list[Array]:
        """The summed tensors, where `elements` has units: `sums` are numbers of its form already.

        With a `part` they are of the blocks that have a number of it alone.
        """
        ...


def check_size(source: BlockSource) -> None:
    """Raise InvalidTensorError when the blocks are more than a key can number."""
    if source.n_blocks > MAX_BLOCKS:
        raise InvalidTensorError(
            f"{source.n_blocks} blocks, more than the {MAX_BLOCKS} of a collective: split the tensor"
        )


class ConcatenatedBlocks:
    """Several sources, one after the other in one space of blocks."""

    def __init__(self, parts: Sequence[BlockSource], block_words: int) -> None:
        self.parts = list(parts)
        self._block_words = block_words
        self.starts = np.cumsum([0] + [part.n_blocks for part in parts])
        self.n_blocks = int(self.starts[-1])
        self.nonzero: NDArray[np.bool_] = np.concatenate([part.nonzero for part in parts] or [np.zeros(0, bool)])
        exponents = [part.exponents for part in parts]
        self.exponents: NDArray[np.uint8] = np.concatenate(exponents or [np.zeros(0, np.uint8)])

    def encode(self, blocks: NDArray[np.int64], exponents: NDArray[np.uint8]) -> Words:
        owner = np.searchsorted(self.starts, blocks, side="right") - 1
        first = int(owner[0])
        if (owner == first).all():
            return self.parts[first].encode(blocks - self.starts[first], exponents)
        words = np.empty((len(blocks), self._block_words), ">u4")
        for index in np.unique(owner):
            mine = owner == index
            part = self.parts[index].encode(blocks[mine] - self.starts[index], exponents[mine])
            words[mine] = part.view(">u4")
        return words

    def decode(self, sums: Words, exponents: NDArray[np.uint8]) -> list[Array]:
        spans = zip(self.parts, self.starts[:-1], self.starts[1:], strict=True)
        return [out for part, a, b in spans for out in part.decode(sums[a:b], exponents[a:b])]


class NoBlocks:
    """The source of a collective that moves no data (barrier)."""

    n_blocks = 0
    nonzero: NDArray[np.bool_] = np.zeros(0, bool)
    exponents: NDArray[np.uint8] = np.zeros(0, np.uint8)
    elements = Elements(np.zeros(0, np.uint32))

    def encode(self, blocks: NDArray[np.int64], exponents: NDArray[np.uint8]) -> Words:
        raise AssertionError("there are no blocks to encode")

    def decode(self, sums: Words, exponents: NDArray[np.uint8]) -> list[Array]:
        return []
