"""Match-action tables: the control plane's entries. rows.py has the same entries for compiled lookups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from p4reduce_switch.program.errors import EntryExistsError, EntryMissingError, TableFullError, TableIsConstError
from p4reduce_switch.program.ir import program as ir
from p4reduce_switch.program.memory import RowLayout, Words
from p4reduce_switch.program.state.profiles import ActionProfile, Choices, Target, check_call
from p4reduce_switch.program.state.rows import Match, TableRows, canonical
from p4reduce_switch.program.state.stateful import Bucket, MeterConfig, microseconds

EntryKey = tuple[Match, int]
"""The key of an entry in its table: match tuple and priority."""


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
    row: int | None = None
    """Its number in TableRows."""


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
        self.keys = declared.keys
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
        self._started_us = started_us
        self._rows = TableRows(declared, words)
        self.by_row: dict[int, Stored] = {}
        if profile is not None:
            profile.attach(self, self.action_params)
        self.reset_default()
        for entry in declared.entries:
            identity = self._identity(entry.match, entry.priority)
            if identity in self._entries:
                raise EntryExistsError(f"table {self.name}: duplicate const entry {entry.match}")
            self._put(Stored(*identity, entry.action.name, entry.arguments, const=True))
        self.const = bool(declared.entries)

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
        assert entry.row is not None
        del self._entries[identity], self.by_row[entry.row]
        self._rows.remove(entry.row)
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
        self._rows.set_default(default)

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
        self._rows.update_choices(choices)

    def choices_removed(self, choices: Choices) -> None:
        """Remove choices that no entry uses."""
        self._rows.remove_choices(choices)

    def _put(self, entry: Stored) -> None:
        """Add an entry, or write a changed one."""
        call = (entry.action, entry.params) if entry.choices is None else entry.choices
        row = self._rows.put(entry.row, entry.match, entry.priority, call)
        if entry.row is None:
            entry.row = row
            self._entries[entry.match, entry.priority] = self.by_row[row] = entry
            if self.supports_timeout:
                self._rows.words(row)[RowLayout.HIT] = self.clock() - self._started_us

    def _row_at(self, match: Match, priority: int) -> Words:
        return self._words_of(self._existing(self._identity(match, priority)))

    def _words_of(self, entry: Stored) -> Words:
        assert entry.row is not None
        return self._rows.words(entry.row)

    def _shown(self, entry: Stored) -> Entry:
        """Return a copy of an entry for the control plane."""
        row = self._words_of(entry)
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

    # ---- checks

    def _identity(self, match: Match, priority: int) -> EntryKey:
        if len(match) != len(self.keys):
            raise ValueError(f"table {self.name} has {len(self.keys)} keys, the match has {len(match)}")
        if self._needs_priority and priority <= 0:
            raise ValueError(f"table {self.name} needs a priority above 0")
        if not self._needs_priority and priority != 0:
            raise ValueError(f"table {self.name} takes no priority")
        parts = zip(self.keys, match, strict=True)
        return tuple(canonical(k.kind, k.bits, part, k.name) for k, part in parts), priority

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
