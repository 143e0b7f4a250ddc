"""A table's entries as rows of words, which compiled lookups read, with their indexes.

The row of an entry does not change. Lookups of an exact table use a hash table with open addressing, those of others
scan the rows in order of precedence; an insert or a delete changes one place of either.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

import numpy as np

from p4reduce_switch.program.ir import program as ir
from p4reduce_switch.program.memory import (
    WORD,
    ChoicesWord,
    RowLayout,
    TableWord,
    Words,
    address,
    argument_kinds,
    arguments_words,
)
from p4reduce_switch.program.state.profiles import Call, Choices

Match = tuple[ir.KeyTest, ...]
"""A test for each key, in the table's order."""

FEWEST_ROWS = 16
MULTIPLIER = 0x9E3779B97F4A7C15


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


class TableRows:
    """The rows of one table, their index, and the default action."""

    def __init__(self, declared: ir.Table, words: Words) -> None:
        """`words` are the table's words in the program's state (`memory.TableWord`)."""
        self._kinds = [key.kind for key in declared.keys]
        self._needs_priority = any(kind in ir.RANKED for kind in self._kinds)
        self._actions = {action.name: (number, action) for number, action in enumerate(declared.actions)}
        self._table, self._layout = words, RowLayout(declared)
        self._rows: Words = np.zeros((FEWEST_ROWS, self._layout.words), np.int64)
        self._index: HashIndex | OrderIndex = HashIndex(self._layout) if self._layout.exact else OrderIndex()
        self._free: list[int] = []
        self._used = 0
        self._choices: dict[Choices, tuple[Words, Words]] = {}
        """Words of `ChoicesWord`, and the calls that these point to, for the choices of each entry."""
        most = max((arguments_words(action) for action in declared.actions), default=0)
        self._default_arguments: Words = np.zeros(most + 1, np.int64)
        words[TableWord.DEFAULT_ARGUMENTS] = address(self._default_arguments)
        self._publish()

    def words(self, row: int) -> Words:
        """Return the words of a row, laid out as `RowLayout`; valid until the next `put`."""
        words: Words = self._rows[row]
        return words

    def put(self, row: int | None, match: Match, priority: int, call: Call | Choices) -> int:
        """Write the action or the choices of an entry, in a new row for None; return the row."""
        new = row is None
        number = self._new_row() if row is None else row
        words = self._rows[number]
        if isinstance(call, Choices):
            if call not in self._choices:
                self._write_choices(call)
            words[self._layout.arguments] = address(self._choices[call][0])
        else:
            words[RowLayout.ACTION] = self._write_call(words[self._layout.arguments :], call)
        if new:
            words[RowLayout.MATCH : self._layout.arguments] = _signed(self._match_words(match))
            self._index.add(number, self._rows, self._rank(match, priority))
        self._publish()
        return number

    def remove(self, row: int) -> None:
        """Remove the row of an entry."""
        self._index.remove(row, self._rows)
        self._free.append(row)
        self._publish()

    def set_default(self, call: Call | None) -> None:
        """Set the default action; None for none."""
        number = -1 if call is None else self._write_call(self._default_arguments, call)
        self._table[TableWord.DEFAULT] = number

    def update_choices(self, choices: Choices) -> None:
        """Write changed choices, if an entry uses them."""
        if choices in self._choices:
            self._write_choices(choices)

    def remove_choices(self, choices: Choices) -> None:
        """Remove choices that no entry uses."""
        self._choices.pop(choices, None)

    def _write_choices(self, choices: Choices) -> None:
        words = self._choices[choices][0] if choices in self._choices else np.zeros(len(ChoicesWord), np.int64)
        calls = np.zeros((max(1, len(choices.calls)), self._layout.call_words), np.int64)
        for row, call in zip(calls, choices.calls, strict=False):
            row[0] = self._write_call(row[1:], call)
        words[ChoicesWord.COUNT], words[ChoicesWord.CALLS] = len(choices.calls), address(calls)
        self._choices[choices] = (words, calls)

    def _write_call(self, words: Words, call: Call) -> int:
        """Write an action's arguments in the layout that compiled code reads; return the action's number."""
        number, action = self._actions[call[0]]
        raw = bytearray(8 * arguments_words(action))
        for value, (offset, kind) in zip(call[1], argument_kinds(action), strict=True):
            raw[offset : offset + kind.bytes_] = value.to_bytes(kind.bytes_, "big" if kind.wide else "little")
        words[: len(raw) // 8] = np.frombuffer(raw, np.int64)
        return number

    def _new_row(self) -> int:
        if self._free:
            row = self._free.pop()
        else:
            if self._used == len(self._rows):
                self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
            row, self._used = self._used, self._used + 1
        self._rows[row] = 0
        return row

    def _match_words(self, match: Match) -> list[int]:
        masks, values, lows, highs = zip(*match, strict=True)
        parts = (values, masks, lows, highs)[: self._layout.parts]
        return [word for part in parts for word in self._key_words(part)]

    def _key_words(self, values: Sequence[int]) -> list[int]:
        return [
            value >> 64 * word & WORD
            for value, words in zip(values, self._layout.key_words, strict=True)
            for word in range(words)
        ]

    def _rank(self, match: Match, priority: int) -> int:
        """Return the rank in a scan, lowest first: the largest priority, or the longest prefix."""
        if self._needs_priority:
            return -priority
        return -sum(test.mask.bit_count() for kind, test in zip(self._kinds, match, strict=True) if kind == "lpm")

    def _publish(self) -> None:
        """Write addresses and count to the words that compiled code reads."""
        self._table[TableWord.ROWS] = address(self._rows)
        self._table[TableWord.INDEX] = address(self._index.memory)
        self._table[TableWord.COUNT] = self._index.count


def _signed(words: list[int]) -> Words:
    return np.array(words, np.uint64).view(np.int64)
