"""Indexes of table rows for compiled lookups: a hash table for exact keys, an ordered list for all others."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

import numpy as np

from p4reduce_switch.program.memory import RowLayout
from p4reduce_switch.program.state.words import Words

FEWEST_ROWS = 16
MULTIPLIER = 0x9E3779B97F4A7C15
WORD = (1 << 64) - 1


def hash_of(words: Iterable[int]) -> int:
    """Return the hash of the words of a key, 64 bits each; `llvm/lookup.py` computes the same."""
    hashed = 0
    for word in words:
        hashed = (hashed ^ word) * MULTIPLIER & WORD
        hashed ^= hashed >> 32
    return hashed


class HashIndex:
    """A hash table of row numbers plus one, at most half full; 0 is empty."""

    def __init__(self, layout: RowLayout) -> None:
        self._start, self._end = layout.MATCH, layout.arguments
        self._held = 0
        self.memory = np.zeros(2 * FEWEST_ROWS, np.int32)

    @property
    def count(self) -> int:
        """The mask of positions."""
        return len(self.memory) - 1

    def _home(self, row: int, rows: Words) -> int:
        words = rows[row, self._start : self._end].tolist()
        return hash_of(int(word) & WORD for word in words) & self.count

    def add(self, row: int, rows: Words, _rank: int) -> None:
        """Add a row."""
        self._held += 1
        if 2 * self._held > len(self.memory):
            held = [int(number) - 1 for number in self.memory if number]
            self.memory = np.zeros(2 * len(self.memory), np.int32)
            for other in held:
                self._place(other, rows)
        self._place(row, rows)

    def _place(self, row: int, rows: Words) -> None:
        position = self._home(row, rows)
        while self.memory[position]:
            position = position + 1 & self.count
        self.memory[position] = row + 1

    def remove(self, row: int, rows: Words) -> None:
        """Remove a row, and move up the rows after it that would become unreachable."""
        self._held -= 1
        gap = self._home(row, rows)
        while self.memory[gap] != row + 1:
            gap = gap + 1 & self.count
        position = gap
        while True:
            position = position + 1 & self.count
            other = int(self.memory[position])
            if not other:
                break
            home = self._home(other - 1, rows)
            if (position - home & self.count) >= (position - gap & self.count):
                self.memory[gap] = other
                gap = position
        self.memory[gap] = 0


class OrderIndex:
    """Row numbers ordered by rank; equal ranks in the order of their insertion."""

    def __init__(self) -> None:
        self._ranks: list[tuple[int, int]] = []
        self._rank_of: dict[int, tuple[int, int]] = {}
        self._added = 0
        self.memory = np.zeros(FEWEST_ROWS, np.int32)

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self._ranks)

    def add(self, row: int, _rows: Words, rank: int) -> None:
        """Add a row."""
        if len(self._ranks) == len(self.memory):
            self.memory = np.concatenate([self.memory, np.zeros_like(self.memory)])
        self._rank_of[row] = (rank, self._added)
        self._added += 1
        position, end = bisect_left(self._ranks, self._rank_of[row]), len(self._ranks)
        self._ranks.insert(position, self._rank_of[row])
        self.memory[position + 1 : end + 1] = self.memory[position:end].copy()
        self.memory[position] = row

    def remove(self, row: int, _rows: Words) -> None:
        """Remove a row."""
        position = bisect_left(self._ranks, self._rank_of.pop(row))
        del self._ranks[position]
        end = len(self._ranks)
        self.memory[position:end] = self.memory[position + 1 : end + 1].copy()
