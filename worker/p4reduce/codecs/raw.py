"""Raw bytes: moved bit for bit, each block held by one rank only, so that its sum is a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs.arrays import blocks_of
from p4reduce.protocol.source import Words


def block_count(n_bytes: int, block_words: int) -> int:
    """Blocks that `n_bytes` take."""
    return -(-n_bytes // (4 * block_words))


class RawSource:
    """This rank's bytes at block `first` of a space of `n_blocks`; blocks of zeros do not travel.

    The result is all the bytes of the space, as one uint8 array.
    """

    def __init__(self, data: NDArray[np.uint8], block_words: int, first: int, n_blocks: int) -> None:
        padded = np.concatenate([data, np.zeros(-len(data) % 4, np.uint8)])
        self._rows = blocks_of(padded.view("<u4"), block_words)
        self._first = first
        self.n_blocks = n_blocks
        self.nonzero: NDArray[np.bool_] = np.zeros(n_blocks, bool)
        self.nonzero[first : first + len(self._rows)] = self._rows.any(axis=1)
        self.exponents: NDArray[np.uint8] = np.zeros(n_blocks, np.uint8)

    def encode(self, blocks: NDArray[np.int64], exponents: NDArray[np.uint8]) -> Words:
        return self._rows[blocks - self._first].astype(">u4")

    def decode(self, sums: Words, exponents: NDArray[np.uint8]) -> list[NDArray[Any]]:
        return [sums.view(">u4").astype("<u4").reshape(-1).view(np.uint8)]


def bytes_of(array: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of a C-contiguous array, as a flat array."""
    return array.reshape(-1).view(np.uint8) if array.size else np.zeros(0, np.uint8)
