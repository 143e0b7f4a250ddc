"""Tables: the control plane's own objects, and the same entries as rows of words for compiled lookups.

A row never moves while its entry lives. An exact table finds rows by a hash table with open addressing, any other by
a scan in the order of preference; an insert or a delete changes one place of either.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from p4reduce_switch.program.ir import program
from p4reduce_switch.program.llvm.arrays import Words, address
from p4reduce_switch.program.llvm.hashing import hash_of
from p4reduce_switch.program.llvm.memory import (
    ChoicesWord,
    RowLayout,
    StateMap,
    TableWord,
    argument_kinds,
    arguments_words,
)
from p4reduce_switch.program.state.lookup import Match, mask_of
from p4reduce_switch.program.state.profiles import ActionProfile, Choices
from p4reduce_switch.program.state.tables import Binding, Entry, KeyField, Stored, Table

WORD = (1 << 64) - 1
FEWEST_ROWS = 16


class CompiledTable(Table):
    """A table whose entries are in memory too; their direct counters are there alone."""

    def __init__(
        self, table: program.Table, state: Words, map_: StateMap, profile: ActionProfile | None, started_us: int
    ) -> None:
        self._started_us = started_us
        self._state, self._base, self._row = state, map_.tables[table], map_.rows[table]
        self._actions = {action.name: (number, action) for number, action in enumerate(table.actions)}
        self._rows: Words = np.zeros((FEWEST_ROWS, self._row.words), np.int64)
        self._choices: dict[Choices, tuple[Words, Words]] = {}
        """For each the words of `ChoicesWord`, and the calls that they tell of."""
        self._free: list[int] = []
        self._top = 0
        self._row_of: dict[tuple[Match, int], int] = {}
        self.by_row: dict[int, Stored] = {}
        most = max((arguments_words(action) for action in table.actions), default=0)
        self._default: Words = np.zeros(most + 1, np.int64)
        self._index: _HashIndex | _Order = _HashIndex(self._row) if self._row.exact else _Order()
        default = table.default
        super().__init__(
            table.name,
            keys=[KeyField(key.name, key.kind, key.bits) for key in table.keys],
            max_size=table.max_size,
            action_params={action.name: list(action.parameters) for action in table.actions},
            default_action=None if default is None else (default[0].name, default[1]),
            default_is_const=table.default_is_const,
            has_direct_counter=table.has_direct_counter,
            direct_meter_unit=None if table.direct_meter is None else table.direct_meter.unit,
            supports_timeout=table.supports_timeout,
            profile=profile,
        )
        state[self._base + TableWord.DEFAULT] = -1
        state[self._base + TableWord.DEFAULT_ARGUMENTS] = address(self._default)
        entries = [
            Entry(entry.match, entry.priority, entry.action.name, entry.arguments, const=True)
            for entry in table.entries
        ]
        self.bind({name: Binding(_not_called, 0, 0) for name in self._actions}, entries)
        self._show()

    # ---- control plane

    def delete(self, match: Match, priority: int) -> None:
        """Remove an entry."""
        identity = self._writable(match, priority)
        super().delete(match, priority)
        row = self._row_of.pop(identity)
        del self.by_row[row]
        self._index.remove(row, self._rows)
        self._free.append(row)
        self._show()

    def entries(self) -> Iterator[Entry]:
        """All entries, in the order in which they were added."""
        for entry in self._entries.values():
            self._count(entry)
        return super().entries()

    def entry(self, match: Match, priority: int) -> Entry:
        """The entry with this match; EntryMissing when there is none."""
        self._count(self._existing(self._identity(match, priority)))
        return super().entry(match, priority)

    def read_counter(self, match: Match, priority: int) -> tuple[int, int]:
        """(packets, bytes) of an entry's direct counter."""
        self._count(self._existing(self._identity(match, priority)))
        return super().read_counter(match, priority)

    def write_counter(self, match: Match, priority: int, packets: int, bytes_: int) -> None:
        """Set an entry's direct counter; those of const entries can be set too."""
        super().write_counter(match, priority, packets, bytes_)
        row = self._row_of[self._identity(match, priority)]
        self._rows[row, RowLayout.PACKETS], self._rows[row, RowLayout.BYTES] = packets, bytes_

    # ---- the action profile

    def choices_changed(self, choices: Choices) -> None:
        """Choices of the action profile have other calls now."""
        super().choices_changed(choices)
        if choices in self._choices:
            self._write_choices(choices)

    def choices_gone(self, choices: Choices) -> None:
        """Nothing will refer to these any more."""
        super().choices_gone(choices)
        self._choices.pop(choices, None)

    def _write_choices(self, choices: Choices) -> None:
        words = self._choices[choices][0] if choices in self._choices else np.zeros(len(ChoicesWord), np.int64)
        calls = np.zeros((max(1, len(choices.calls)), self._row.call_words), np.int64)
        for row, (name, arguments) in zip(calls, choices.calls, strict=False):
            number, action = self._actions[name]
            row[0] = number
            _write_arguments(row[1:], arguments, action)
        words[ChoicesWord.COUNT], words[ChoicesWord.CALLS] = len(choices.calls), address(calls)
        self._choices[choices] = (words, calls)

    # ---- memory

    def _count(self, entry: Stored) -> None:
        """Fetch an entry's direct counter, and when it was hit."""
        row = self._rows[self._row_of[entry.match, entry.priority]]
        entry.packets, entry.bytes = int(row[RowLayout.PACKETS]), int(row[RowLayout.BYTES])
        if self.supports_timeout:
            entry.hit_us = self._started_us + int(row[RowLayout.HIT])

    def _put(self, entry: Stored) -> None:
        super()._put(entry)
        identity = (entry.match, entry.priority)
        known = identity in self._row_of
        row = self._row_of[identity] if known else self._new_row()
        words = self._rows[row]
        if entry.choices is not None:
            if entry.choices not in self._choices:
                self._write_choices(entry.choices)
            words[self._row.arguments] = address(self._choices[entry.choices][0])
        else:
            number, action = self._actions[entry.action]
            words[RowLayout.ACTION] = number
            _write_arguments(words[self._row.arguments :], entry.params, action)
        if not known:
            words[RowLayout.HIT] = entry.hit_us - self._started_us
            self._row_of[identity] = row
            self.by_row[row] = entry
            words[RowLayout.MATCH : self._row.arguments] = _signed(self._match_words(entry.match))
            self._index.add(row, self._rows, self._rank(entry))
        self._show()

    def _new_row(self) -> int:
        if self._free:
            row = self._free.pop()
        else:
            if self._top == len(self._rows):
                self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
            row, self._top = self._top, self._top + 1
        self._rows[row] = 0
        return row

    def _match_words(self, match: Match) -> list[int]:
        if self._row.exact:
            return self._key_words(match)
        kinds = [(key.match_type, key.bitwidth) for key in self.keys]
        pairs = [mask_of(kind, width, part) for (kind, width), part in zip(kinds, match, strict=True)]
        parts = [self._key_words(tuple(pair[0] for pair in pairs)), self._key_words(tuple(pair[1] for pair in pairs))]
        if self._row.ranges:
            ranges = [part if kind == "range" else (0, 0) for (kind, _), part in zip(kinds, match, strict=True)]
            parts += [self._key_words(tuple(pair[side] for pair in ranges)) for side in (0, 1)]
        return [word for part in parts for word in part]

    def _key_words(self, values: tuple[int, ...]) -> list[int]:
        return [
            value >> 64 * word & WORD
            for value, words in zip(values, self._row.key_words, strict=True)
            for word in range(words)
        ]

    def _rank(self, entry: Stored) -> int:
        """What is preferred in a scan: the largest priority, then the longest prefix."""
        if self._needs_priority:
            return -entry.priority
        lengths = [part[1] for key, part in zip(self.keys, entry.match, strict=True) if key.match_type == "lpm"]
        return -int(sum(lengths))

    def _bind_default(self) -> None:
        super()._bind_default()
        if self.default_action is None:
            self._state[self._base + TableWord.DEFAULT] = -1
            return
        name, arguments = self.default_action
        number, action = self._actions[name]
        self._state[self._base + TableWord.DEFAULT] = number
        _write_arguments(self._default, arguments, action)

    def _show(self) -> None:
        """Tell the compiled code where everything is."""
        self._state[self._base + TableWord.ROWS] = address(self._rows)
        self._state[self._base + TableWord.INDEX] = address(self._index.memory)
        self._state[self._base + TableWord.COUNT] = self._index.count


class _HashIndex:
    """Row numbers + 1 in a hash table, at most half full; 0 is empty."""

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
        """Take in a row."""
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
        """Forget a row; those behind that would not be found any more move up."""
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


class _Order:
    """Row numbers in the order of preference; of equal ranks the one that came first."""

    def __init__(self) -> None:
        self._ranks: list[tuple[int, int]] = []
        self._rank_of: dict[int, tuple[int, int]] = {}
        self._added = 0
        self.memory = np.zeros(FEWEST_ROWS, np.int32)

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self._ranks)

    def add(self, row: int, _rows: Words, rank: int) -> None:
        """Take in a row."""
        if len(self._ranks) == len(self.memory):
            self.memory = np.concatenate([self.memory, np.zeros_like(self.memory)])
        self._rank_of[row] = (rank, self._added)
        self._added += 1
        position, end = bisect_left(self._ranks, self._rank_of[row]), len(self._ranks)
        self._ranks.insert(position, self._rank_of[row])
        self.memory[position + 1 : end + 1] = self.memory[position:end].copy()
        self.memory[position] = row

    def remove(self, row: int, _rows: Words) -> None:
        """Forget a row."""
        position = bisect_left(self._ranks, self._rank_of.pop(row))
        del self._ranks[position]
        end = len(self._ranks)
        self.memory[position:end] = self.memory[position + 1 : end + 1].copy()


def _write_arguments(words: Words, arguments: tuple[int, ...], action: program.Action) -> None:
    """An action's arguments as compiled code reads them."""
    raw = bytearray(8 * arguments_words(action))
    for value, (offset, kind) in zip(arguments, argument_kinds(action), strict=True):
        raw[offset : offset + kind.bytes_] = value.to_bytes(kind.bytes_, "big" if kind.wide else "little")
    words[: len(raw) // 8] = np.frombuffer(raw, np.int64)


def _signed(words: list[int]) -> Words:
    return np.array(words, np.uint64).view(np.int64)


def _not_called(_fields: list[object]) -> None:
    """Stands for an action: compiled code runs them by their numbers."""
