"""Match-action tables: the control plane's entries. rows.py has the same entries for compiled lookups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from p4reduce_switch.program.errors import EntryExistsError, EntryMissingError, TableFullError
from p4reduce_switch.program.ir import program as ir
from p4reduce_switch.program.memory import RowLayout, Words
from p4reduce_switch.program.state.profiles import ActionProfile, Call, Choices, Target
from p4reduce_switch.program.state.rows import Match, TableRows
from p4reduce_switch.program.state.stateful import Bucket, MeterConfig, microseconds

EntryKey = tuple[Match, int]
"""The key of an entry in its table: match and priority."""
Metadata = tuple[int, bytes]
"""P4Runtime's controller_metadata and metadata, which the controller gives with an entry and reads back."""
NO_METADATA: Final[Metadata] = (0, b"")


@dataclass(frozen=True)
class Entry:
    """A copy of an entry; packets and bytes are its direct counter, if the table has one.

    In a table that supports timeouts `hit_us` is the time of its last hit, or of its insertion, on the monotonic clock.
    """

    match: Match
    priority: int
    call: Call | Target
    """An action and its arguments, or in a table with an action profile what it refers to."""
    packets: int = 0
    bytes: int = 0
    const: bool = False
    metadata: Metadata = NO_METADATA
    hit_us: int = field(default=0, compare=False)


@dataclass(slots=True)
class Stored:
    """An entry in the table, with its direct meter; its direct counter and last hit are in its row."""

    match: Match
    priority: int
    call: Call | Target
    const: bool = False
    metadata: Metadata = NO_METADATA
    meter: Bucket = field(default_factory=Bucket)
    choices: Choices | None = None
    row: int | None = None
    """The entry's row number in TableRows."""


class Table:
    """A match-action table. Priorities are P4Runtime's: larger wins; 0 in exact and lpm tables.

    Matches and arguments are as its keys and actions declare them: who writes entries has checked that. Errors: the
    TableErrors of `errors.py` and, where entries refer to an action profile, ProfileErrors.
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
        self._started_us = started_us
        self._rows = TableRows(declared, words)
        self.by_row: dict[int, Stored] = {}
        if profile is not None:
            profile.attach(self)
        self.reset_default()
        for entry in declared.entries:
            self._check_absent(entry.match, entry.priority)
            call = (entry.action.name, entry.arguments)
            self._put(Stored(entry.match, entry.priority, call, const=True), call)
        self.const = bool(declared.entries)

    @property
    def has_direct_meter(self) -> bool:
        return self.direct_meter_unit is not None

    # ---- entries

    def insert(self, match: Match, priority: int, call: Call | Target, metadata: Metadata = NO_METADATA) -> None:
        """Add an entry."""
        self._check_absent(match, priority)
        if len(self._entries) >= self.max_size:
            raise TableFullError(f"table {self.name} holds {self.max_size} entries and is full")
        self._put(Stored(match, priority, call, metadata=metadata), call)

    def modify(self, match: Match, priority: int, call: Call | Target | None, metadata: Metadata = NO_METADATA) -> None:
        """Change the metadata of an entry and, unless it is None, the call; its direct counter stays."""
        entry = self._existing(match, priority)
        if call is not None:
            self._put(entry, call)
        entry.metadata = metadata

    def delete(self, match: Match, priority: int) -> None:
        """Remove an entry."""
        entry = self._existing(match, priority)
        assert entry.row is not None
        del self._entries[match, priority], self.by_row[entry.row]
        self._rows.remove(entry.row)
        if self.profile is not None and entry.choices is not None:
            self.profile.release(entry.choices)

    def entries(self) -> Iterator[Entry]:
        """Return all entries in the order of insertion."""
        return iter([self._shown(entry) for entry in self._entries.values()])

    def entry(self, match: Match, priority: int) -> Entry:
        """Return the entry with this match; EntryMissingError if there is none."""
        return self._shown(self._existing(match, priority))

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
        self._existing(match, priority).meter.configure(config, self.clock())

    def read_meter(self, match: Match, priority: int) -> MeterConfig | None:
        """Return the rates of an entry's direct meter; None if it has none."""
        return self._existing(match, priority).meter.config

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

    def _put(self, entry: Stored, call: Call | Target) -> None:
        """Add an entry, or write a changed one, with this call."""
        written: Call | Choices
        if isinstance(call, tuple):
            written = call
        else:
            assert self.profile is not None
            written = entry.choices = self.profile.refer(call, entry.choices)
        entry.call = call
        row = self._rows.put(entry.row, entry.match, entry.priority, written)
        if entry.row is None:
            entry.row = row
            self._entries[entry.match, entry.priority] = self.by_row[row] = entry
            if self.supports_timeout:
                self._rows.words(row)[RowLayout.HIT] = self.clock() - self._started_us

    def _row_at(self, match: Match, priority: int) -> Words:
        return self._words_of(self._existing(match, priority))

    def _words_of(self, entry: Stored) -> Words:
        assert entry.row is not None
        return self._rows.words(entry.row)

    def _shown(self, entry: Stored) -> Entry:
        """Return a copy of an entry for the control plane."""
        row = self._words_of(entry)
        return Entry(
            entry.match,
            entry.priority,
            entry.call,
            int(row[RowLayout.PACKETS]),
            int(row[RowLayout.BYTES]),
            entry.const,
            entry.metadata,
            self._started_us + int(row[RowLayout.HIT]) if self.supports_timeout else 0,
        )

    def _existing(self, match: Match, priority: int) -> Stored:
        try:
            return self._entries[match, priority]
        except KeyError:
            raise EntryMissingError(f"table {self.name} has no such entry") from None

    def _check_absent(self, match: Match, priority: int) -> None:
        if (match, priority) in self._entries:
            raise EntryExistsError(f"table {self.name} already has this entry; use MODIFY")
