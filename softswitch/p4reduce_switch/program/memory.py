"""The layout of a program's state, which Python and machine code share.

The state is an array of 64-bit words. Most are addresses of separate arrays; Python may replace them
between two calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from p4reduce_switch.program.ir.externs import Counter, Register
from p4reduce_switch.program.ir.program import Action, Program, Table, ValueSet
from p4reduce_switch.program.layout import Kind, kind_of

Words = NDArray[np.int64]
WORD = (1 << 64) - 1
"""All bits of a word."""


LINE = 64
"""Bytes of a cache line."""


def address(array: NDArray[np.generic]) -> int:
    """Return the address of an array's elements."""
    return int(array.ctypes.data)


def aligned_words(rows: int, columns: int) -> Words:
    """Return [rows, columns] words, all 0, that begin with a cache line."""
    space: Words = np.zeros(rows * columns + LINE // 8, np.int64)
    first = -address(space) % LINE // 8
    return space[first : first + rows * columns].reshape(rows, columns)


class Word(IntEnum):
    """Words that every program has."""

    CALLBACK = 0
    """Address of a C function `int64_t (kind, number, a, b)`: see `Call`."""
    VALUES = 1
    """Address of the values of a digest or a log message: `llvm/host_abi.py`."""
    RECORD = 2
    """Address of the record of the current packet."""
    SAVED = 3
    """Address of a copy of it, for multicast."""
    SCRATCH = 4
    """Address of a buffer for the input of a hash."""
    GROUPS = 5
    """Address of two 32-bit numbers for each multicast group: its first replica, and how many it has."""
    REPLICAS = 6
    """Address of two 32-bit numbers for each replica: port and instance."""
    COPIES = 7
    """Replicas of the largest group, at least 1."""
    DIGEST = 8
    """Id of the digest that the last frame sent, or 0."""
    FAILURE = 9
    """The number of the reason why the last frame failed, or 0."""
    FAILURE_LOW = 10
    FAILURE_HIGH = 11
    """The 128-bit number that the error of this failure shows, in two words."""
    FAILURE_LIMIT = 12
    LOGGING = 13
    """1 while log messages have a receiver."""
    NOW_US = 14
    """Microseconds since the program started, for tables with idle timeouts; other programs may ignore it."""
    LOCKS = 15
    """Address of LOCKS cache lines, in a program that several threads run: the first word is not 0 while it is held."""
    FIRST_FREE = 16


LOCKS = 256
"""Number of locks of a program's registers. A thread holds that of the index that its frame accesses."""
LOCK_SPAN = 32
"""Indices in a row that share one lock; the lock after the last one is the first again."""


class TableWord(IntEnum):
    """Words of each table."""

    ROWS = 0
    """Address of its rows."""
    INDEX = 1
    """Address of 32-bit row numbers: a hash table of them + 1 (0: empty), or in the order of preference."""
    COUNT = 2
    """Size of the hash table - 1, or the number of entries."""
    DEFAULT = 3
    """Number of the default action, or -1."""
    DEFAULT_ARGUMENTS = 4
    """Address of its arguments."""


class ValueSetWord(IntEnum):
    """Words of each value set."""

    MEMBERS = 0
    """Address of its members: for each key mask, value, low and high, each in the words of the key."""
    COUNT = 1
    """Number of members."""


class ChoicesWord(IntEnum):
    """Words of what the entries of a table with an action profile refer to."""

    COUNT = 0
    """Number of calls to choose among."""
    CALLS = 1
    """Address of the calls: for each the number of its action, and the arguments."""


class Call(IntEnum):
    """The callbacks of compiled code."""

    METER = 0
    """(meter, index, bytes) -> color."""
    DIRECT_METER = 1
    """(table, row, bytes) -> color."""
    RANDOM = 2
    """(0, low, high) -> a number."""
    LOG = 3
    """(message, 0, 0); its values are in VALUES, after those of the longest digest."""
    TRACE = 4
    """(point, 0, 0), of traced code; its values are where those of a log message are."""


def words_of(bits: int) -> int:
    """Words of a number in a key: 64 bits each, the lowest first."""
    return max(1, (bits + 63) // 64)


class RowLayout:
    """The words of a table's row: action, packets, bytes, last hit (NOW_US), match, arguments.

    The match is the key in an exact table; else value and mask, then, for tables with range keys, low and high.
    In a table with an action profile the argument is the address of the entry's choices (`ChoicesWord`).
    """

    ACTION, PACKETS, BYTES, HIT, MATCH = range(5)

    def __init__(self, table: Table) -> None:
        self.key_words = [words_of(key.bits) for key in table.keys]
        self.exact = all(key.kind == "exact" for key in table.keys)
        self.ranges = any(key.kind == "range" for key in table.keys)
        width = sum(self.key_words)
        self.parts = 1 if self.exact else 4 if self.ranges else 2
        self.part_words = width
        self.arguments = self.MATCH + self.parts * width
        most = max((arguments_words(action) for action in table.actions), default=0)
        self.call_words = 1 + most
        """Words of a call among an entry's choices."""
        self.words = self.arguments + (most if table.profile is None else 1)


def argument_kinds(action: Action) -> list[tuple[int, Kind]]:
    """The byte offset and kind of each of an action's arguments."""
    found, offset = [], 0
    for _, bits in action.parameters:
        kind = kind_of(bits, False)
        found.append((offset, kind))
        offset += kind.aligned_bytes
    return found


def arguments_words(action: Action) -> int:
    """Words that the arguments of an action take."""
    return sum(kind.aligned_bytes for _, kind in argument_kinds(action)) // 8


class StateOffsets:
    """The number of each word."""

    def __init__(self, program: Program) -> None:
        self.size = int(Word.FIRST_FREE)
        self.registers: dict[Register, int] = {found: self._take(1) for found in program.registers}
        self.cells = register_cells(program.registers)
        self.counters: dict[Counter, int] = {found: self._take(1) for found in program.counters}
        self.tables: dict[Table, int] = {found: self._take(len(TableWord)) for found in program.tables}
        self.rows: dict[Table, RowLayout] = {found: RowLayout(found) for found in program.tables}

        self.value_sets: dict[ValueSet, int] = {found: self._take(len(ValueSetWord)) for found in program.value_sets}

    def _take(self, words: int) -> int:
        self.size += words
        return self.size - words


def register_kind(register: Register) -> Kind:
    """The kind of a cell: up to 64 bits in 1, 2, 4 or 8 bytes, then 16, then network bytes in whole words."""
    return kind_of(register.bitwidth, False)


def register_cells(registers: Iterable[Register]) -> dict[Register, tuple[int, int]]:
    """Return where the cells of each register are: their offset in a row, and the bytes of a row.

    Registers of one size share rows, a row for each index, since programs tend to use the cells of one index together.
    """
    ends: dict[int, int] = {}
    offsets: dict[Register, int] = {}
    for register in sorted(registers, key=lambda found: -register_kind(found).aligned_bytes):
        offsets[register] = ends.get(register.size, 0)
        ends[register.size] = offsets[register] + register_kind(register).aligned_bytes
    rows = {size: end if end < LINE else -(-end // LINE) * LINE for size, end in ends.items()}
    return {register: (offset, rows[register.size]) for register, offset in offsets.items()}
