"""Where a collective's blocks come from, and where the sums go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from p4reduce.errors import InvalidTensor
from p4reduce_contracts.wire import MAX_BLOCKS

Words = NDArray[Any]
"""Big-endian 32-bit words, shape [blocks, block_words]."""

UNTOUCHED = 255
"""In the agreed exponents: no rank held this block, its sum is zero."""


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

    def decode(self, sums: Words, exponents: NDArray[np.uint8]) -> list[NDArray[Any]]:
        """The summed tensors. `sums` [n_blocks, block_words] is zero where `exponents` is UNTOUCHED."""
        ...


def check_size(source: BlockSource) -> None:
    """Raise InvalidTensor when the blocks are more than a key can number."""
    if source.n_blocks > MAX_BLOCKS:
        raise InvalidTensor(f"{source.n_blocks} blocks, more than the {MAX_BLOCKS} of a collective: split the tensor")


class ConcatenatedBlocks:
    """Several sources, one after the other in one space of blocks."""

    def __init__(self, parts: Sequence[BlockSource], block_words: int) -> None:
        self._parts = list(parts)
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
            return self._parts[first].encode(blocks - self.starts[first], exponents)
        words = np.empty((len(blocks), self._block_words), ">u4")
        for index in np.unique(owner):
            mine = owner == index
            part = self._parts[index].encode(blocks[mine] - self.starts[index], exponents[mine])
            words[mine] = part.view(">u4")
        return words

    def decode(self, sums: Words, exponents: NDArray[np.uint8]) -> list[NDArray[Any]]:
        spans = zip(self._parts, self.starts[:-1], self.starts[1:], strict=True)
        return [out for part, a, b in spans for out in part.decode(sums[a:b], exponents[a:b])]


class NoBlocks:
    """The source of a collective that moves no data (barrier)."""

    n_blocks = 0
    nonzero: NDArray[np.bool_] = np.zeros(0, bool)
    exponents: NDArray[np.uint8] = np.zeros(0, np.uint8)

    def encode(self, blocks: NDArray[np.int64], exponents: NDArray[np.uint8]) -> Words:
        raise AssertionError("there are no blocks to encode")

    def decode(self, sums: Words, exponents: NDArray[np.uint8]) -> list[NDArray[Any]]:
        return []
