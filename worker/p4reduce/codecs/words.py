"""Blocks of plain 32-bit words: what int32, lanes and raw bytes come down to."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs.arrays import blocks_of
from p4reduce.protocol.source import ANY_SUM, Array, Elements, Words


class WordSource:
    """Words that the switch adds modulo 2^32; `finish` turns the summed words into the result."""

    def __init__(
        self,
        words: NDArray[np.uint32],
        block_words: int,
        dense: bool,
        finish: Callable[[NDArray[np.uint32]], Array],
        largest_sum: int = ANY_SUM,
    ) -> None:
        self._count = len(words)
        self._finish = finish
        rows = blocks_of(words, block_words)
        self.n_blocks = len(rows)
        self.nonzero: NDArray[np.bool_] = np.ones(len(rows), bool) if dense else np.asarray(rows.any(axis=1))
        self.exponents: NDArray[np.uint8] = np.zeros(len(rows), np.uint8)
        self._rows = rows
        self.elements = Elements(words, largest_sum=largest_sum)

    def encode(self, blocks: NDArray[np.int64], exponents: NDArray[np.uint8]) -> Words:
        return self._rows[blocks].astype(">u4")

    def decode(self, sums: Words, exponents: NDArray[np.uint8]) -> list[Array]:
        return [self._finish(sums.reshape(-1)[: self._count].astype(np.uint32, copy=False))]
