"""Match-action tables: the control plane's entries, and the same entries as rows of words for compiled lookups.

The row of an entry does not change. Lookups of an exact table use a hash table with open addressing, those of others
scan the rows in order of precedence; an insert or a delete changes one place of either.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from p4reduce_switch.program.errors import EntryExistsError, EntryMissingError, TableFullError, TableIsConstError
from p4reduce_switch.program.ir import program as ir
from p4reduce_switch.program.memory import ChoicesWord, RowLayout, TableWord, argument_kinds, arguments_words
from p4reduce_switch.program.state.indexes import FEWEST_ROWS, WORD, HashIndex, OrderIndex
from p4reduce_switch.program.state.matches import Match, canonical, mask_of
from p4reduce_switch.program.state.profiles import ActionProfile, Choices, Target, check_call
from p4reduce_switch.program.state.stateful import Bucket, MeterConfig, microseconds
from p4reduce_switch.program.state.words import Words, address

EntryKey = tuple[Match, int]
"""The key of an entry in its table: match tuple and priority."""


@dataclass(frozen=True)
class KeyField:
    """One key of a table; `match_type` is exact, lpm, ternary, range or optional."""

    name: str
    match_type: str
    bitwidth: int


@dataclass(frozen=True)
class Entry:
    """A copy of an entry; packets and bytes are its direct counter, if the table has one.

    In a table with an action profile it refers to `target`, and `action` is empty. In a table that supports timeouts
    `hit_us` is the time of its last hit, or of its insertion, on the monotonic clock.
    """

    match: Match
    priority: int
    action: str
    params: tuple[int, ...]
    packets: int = 0
    bytes: int = 0
    const: bool = False
    target: Target | None = None
    hit_us: int = field(default=0, compare=False)


@dataclass(slots=True)
class Stored:
    """An entry in the table, with its direct meter; its direct counter and last hit are in its row."""

    match: Match
    priority: int
    action: str
    params: tuple[int, ...]
    const: bool = False
    meter: Bucket = field(default_factory=Bucket)
    target: Target | None = None
    choices: Choices | None = None


class Table:
    """A match-action table. Match tuples have one element for each key:
    exact -> int; lpm -> (value, prefix length); ternary -> (value, mask); range -> (low, high);
    optional -> int or None. Bits outside the mask are cleared. Priorities are P4Runtime's: larger wins; 0 in exact
    and lpm tables.

    Errors: KeyError for an unknown action, ValueError for a malformed match or parameter, and the TableErrors of
    `errors.py`.
    """

    def __init__(self, declared: ir.Table, words: Words, profile: ActionProfile | None, started_us: int) -> None:
        """`words` are the table's words in the program's state (`memory.TableWord`).

        `started_us` is the origin of the program's time, on the monotonic clock.
        """
        self.name = declared.name
        self.keys = [KeyField(key.name, key.kind, key.bits) for key in declared.keys]
        self.max_size = declared.max_size
        self.action_params = {action.name: list(action.parameters) for action in declared.actions}
        self.default_is_const = declared.default_is_const
        self.has_direct_counter = declared.has_direct_counter
        self.direct_meter_unit = None if declared.direct_meter is None else declared.direct_meter.unit
        self.supports_timeout = declared.supports_timeout
        self.profile = profile
        self.const = False
        """Whether the entries are const: the program declares them, and `allow_changes` was not called."""
        self.clock = microseconds  # of direct meters and hits; tests may replace it
        default = declared.default
        self._initial_default = None if default is None else (default[0].name, default[1])
        self._entries: dict[EntryKey, Stored] = {}
        self._needs_priority = any(key.kind in ir.RANKED for key in declared.keys)
        self._actions = {action.name: (number, action) for number, action in enumerate(declared.actions)}
        self._words, self._row, self._started_us = words, RowLayout(declared), started_us
        self._rows: Words = np.zeros((FEWEST_ROWS, self._row.words), np.int64)
        self._index: HashIndex | OrderIndex = HashIndex(self._row) if self._row.exact else OrderIndex()
        self._free: list[int] = []
        self._top = 0
        self._row_of: dict[EntryKey, int] = {}
        self.by_row: dict[int, Stored] = {}
        self._choices: dict[Choices, tuple[Words, Words]] = {}
        """For each the words of `ChoicesWord`, and the calls that these point to."""
        most = max((arguments_words(action) for action in declared.actions), default=0)
        self._default_arguments: Words = np.zeros(most + 1, np.int64)
        words[TableWord.DEFAULT_ARGUMENTS] = address(self._default_arguments)
        if profile is not None:
            profile.attach(self, self.action_params)
        self.reset_default()
        for entry in declared.entries:
            identity = self._identity(entry.match, entry.priority)
            if identity in self._entries:
                raise EntryExistsError(f"table {self.name}: duplicate const entry {entry.match}")
            self._put(Stored(*identity, entry.action.name, entry.arguments, const=True))
        self.const = bool(declared.entries)
        self._publish()

    @property
    def has_direct_meter(self) -> bool:
        return self.direct_meter_unit is not None

    # ---- entries

    def insert(self, match: Match, priority: int, action: str, params: tuple[int, ...]) -> None:
        """Add an entry."""
        identity = self._writable(match, priority)
        self._check_direct()
        self._check_action(action, params)
        self._check_room(identity)
        self._put(Stored(*identity, action, params))

    def modify(self, match: Match, priority: int, action: str, params: tuple[int, ...]) -> None:
        """Change the action of an entry; its direct counter stays."""
        identity = self._writable(match, priority)
        self._check_direct()
        self._check_action(action, params)
        entry = self._existing(identity)
        entry.action, entry.params = action, params
        self._put(entry)

    def insert_reference(self, match: Match, priority: int, target: Target) -> None:
        """Add an entry that refers to the table's action profile. ValueError in a table without; ProfileErrors."""
        identity = self._writable(match, priority)
        profile = self._check_profile()
        self._check_room(identity)
        choices = profile.refer(target)
        self._put(Stored(*identity, "", (), target=target, choices=choices))

    def modify_reference(self, match: Match, priority: int, target: Target) -> None:
        """Change the target of an entry; its direct counter stays."""
        identity = self._writable(match, priority)
        profile, entry = self._check_profile(), self._existing(identity)
        entry.choices = profile.refer(target, entry.choices)
        entry.target = target
        self._put(entry)

    def delete(self, match: Match, priority: int) -> None:
        """Remove an entry."""
        identity = self._writable(match, priority)
        entry = self._existing(identity)
        del self._entries[identity]
        row = self._row_of.pop(identity)
        del self.by_row[row]
        self._index.remove(row, self._rows)
        self._free.append(row)
        self._publish()
        if self.profile is not None and entry.choices is not None:
            self.profile.release(entry.choices)

    def entries(self) -> Iterator[Entry]:
        """Return all entries in the order of insertion."""
        return iter([self._shown(entry) for entry in self._entries.values()])

    def entry(self, match: Match, priority: int) -> Entry:
        """Return the entry with this match; EntryMissingError if there is none."""
        return self._shown(self._existing(self._identity(match, priority)))

    def allow_changes(self, max_size: int) -> None:
        """Make the entries that the program declares mutable, and set the maximum number of all entries.

        Whether entries are const, and the size of the table, is not in the JSON but in the P4Info.
        """
        self.const, self.max_size = False, max_size
        for entry in self._entries.values():
            entry.const = False

    # ---- the default action

    def set_default(self, action: str, params: tuple[int, ...]) -> None:
        """Set the default action."""
        if self.default_is_const:
            raise TableIsConstError(f"the default action of table {self.name} is const")
        self._check_action(action, params)
        self._set_default((action, params))

    def reset_default(self) -> None:
        """Restore the default action that the program declares."""
        self._set_default(self._initial_default)

    def _set_default(self, default: tuple[str, tuple[int, ...]] | None) -> None:
        self.default_action = default
        if default is None:
            self._words[TableWord.DEFAULT] = -1
            return
        number, action = self._actions[default[0]]
        self._words[TableWord.DEFAULT] = number
        _write_arguments(self._default_arguments, default[1], action)

    # ---- direct counters and meters

    def read_counter(self, match: Match, priority: int) -> tuple[int, int]:
        """Return (packets, bytes) of an entry's direct counter."""
        row = self._row_at(match, priority)
        return int(row[RowLayout.PACKETS]), int(row[RowLayout.BYTES])

    def write_counter(self, match: Match, priority: int, packets: int, bytes_: int) -> None:
        """Set an entry's direct counter; those of const entries can be set too."""
        row = self._row_at(match, priority)
        row[RowLayout.PACKETS], row[RowLayout.BYTES] = packets, bytes_

    def configure_meter(self, match: Match, priority: int, config: MeterConfig | None) -> None:
        """Set the rates of an entry's direct meter; None removes them."""
        self._existing(self._identity(match, priority)).meter.configure(config, self.clock())

    def read_meter(self, match: Match, priority: int) -> MeterConfig | None:
        """Return the rates of an entry's direct meter; None if it has none."""
        return self._existing(self._identity(match, priority)).meter.config

    def meter_color(self, entry: Stored, length: int) -> int:
        """Run a packet of `length` bytes through an entry's direct meter."""
        return entry.meter.execute(1 if self.direct_meter_unit == "packets" else length, self.clock())

    # ---- the action profile

    def choices_changed(self, choices: Choices) -> None:
        """Handle a change of the calls of `choices`."""
        if choices in self._choices:
            self._write_choices(choices)

    def choices_gone(self, choices: Choices) -> None:
        """Remove choices that no entry uses."""
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

    # ---- rows

    def _put(self, entry: Stored) -> None:
        """Add an entry, or write a changed one."""
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
            self._entries[identity] = entry
            if self.supports_timeout:
                words[RowLayout.HIT] = self.clock() - self._started_us
            self._row_of[identity] = row
            self.by_row[row] = entry
            words[RowLayout.MATCH : self._row.arguments] = _signed(self._match_words(entry.match))
            self._index.add(row, self._rows, self._rank(entry))
        self._publish()

    def _new_row(self) -> int:
        if self._free:
            row = self._free.pop()
        else:
            if self._top == len(self._rows):
                self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
            row, self._top = self._top, self._top + 1
        self._rows[row] = 0
        return row

    def _row_at(self, match: Match, priority: int) -> Words:
        entry = self._existing(self._identity(match, priority))
        row: Words = self._rows[self._row_of[entry.match, entry.priority]]
        return row

    def _shown(self, entry: Stored) -> Entry:
        """Return a copy of an entry for the control plane."""
        row = self._rows[self._row_of[entry.match, entry.priority]]
        return Entry(
            entry.match,
            entry.priority,
            entry.action,
            entry.params,
            int(row[RowLayout.PACKETS]),
            int(row[RowLayout.BYTES]),
            entry.const,
            entry.target,
            self._started_us + int(row[RowLayout.HIT]) if self.supports_timeout else 0,
        )

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
        """Return the rank in a scan, lowest first: the largest priority, or the longest prefix."""
        if self._needs_priority:
            return -entry.priority
        lengths = [part[1] for key, part in zip(self.keys, entry.match, strict=True) if key.match_type == "lpm"]
        return -int(sum(lengths))

    def _publish(self) -> None:
        """Write addresses and count to the words that compiled code reads."""
        self._words[TableWord.ROWS] = address(self._rows)
        self._words[TableWord.INDEX] = address(self._index.memory)
        self._words[TableWord.COUNT] = self._index.count

    # ---- checks

    def _identity(self, match: Match, priority: int) -> EntryKey:
        if len(match) != len(self.keys):
            raise ValueError(f"table {self.name} has {len(self.keys)} keys, the match has {len(match)}")
        if self._needs_priority and priority <= 0:
            raise ValueError(f"table {self.name} needs a priority above 0")
        if not self._needs_priority and priority != 0:
            raise ValueError(f"table {self.name} takes no priority")
        parts = zip(self.keys, match, strict=True)
        return tuple(canonical(k.match_type, k.bitwidth, part, k.name) for k, part in parts), priority

    def _writable(self, match: Match, priority: int) -> EntryKey:
        if self.const:
            raise TableIsConstError(f"the entries of table {self.name} are const")
        return self._identity(match, priority)

    def _existing(self, identity: EntryKey) -> Stored:
        try:
            return self._entries[identity]
        except KeyError:
            raise EntryMissingError(f"table {self.name} has no entry for {identity[0]}") from None

    def _check_room(self, identity: EntryKey) -> None:
        if identity in self._entries:
            raise EntryExistsError(f"table {self.name} already has an entry for {identity[0]}")
        if len(self._entries) >= self.max_size:
            raise TableFullError(f"table {self.name} holds {self.max_size} entries and is full")

    def _check_direct(self) -> None:
        if self.profile is not None:
            raise ValueError(f"table {self.name} has an action profile: its entries refer to members or groups")

    def _check_profile(self) -> ActionProfile:
        if self.profile is None:
            raise ValueError(f"table {self.name} has no action profile: its entries have actions")
        return self.profile

    def _check_action(self, action: str, params: tuple[int, ...]) -> None:
        check_call(f"table {self.name}", self.action_params, action, params)


def _write_arguments(words: Words, arguments: tuple[int, ...], action: ir.Action) -> None:
    """Write an action's arguments in the layout that compiled code reads."""
    raw = bytearray(8 * arguments_words(action))
    for value, (offset, kind) in zip(arguments, argument_kinds(action), strict=True):
        raw[offset : offset + kind.bytes_] = value.to_bytes(kind.bytes_, "big" if kind.wide else "little")
    words[: len(raw) // 8] = np.frombuffer(raw, np.int64)


def _signed(words: list[int]) -> Words:
    return np.array(words, np.uint64).view(np.int64)
