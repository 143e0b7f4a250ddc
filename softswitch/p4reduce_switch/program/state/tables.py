"""Match-action tables of the Python executor: what the control plane sees and what the generated code calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from p4reduce_switch.program.errors import EntryExists, EntryMissing, TableFull, TableIsConst
from p4reduce_switch.program.state.lookup import CACHE_SIZE, ExactLookup, Match, canonical, make_lookup
from p4reduce_switch.program.state.stateful import Bucket, MeterConfig, microseconds

Action = Callable[..., None]


@dataclass(frozen=True)
class KeyField:
    """One key of a table; `match_type` is exact, lpm, ternary, range or optional."""

    name: str
    match_type: str
    bitwidth: int


@dataclass(frozen=True)
class Entry:
    """An entry as it was when it was read; packets and bytes are its direct counter, if the table has one."""

    match: Match
    priority: int
    action: str
    params: tuple[int, ...]
    packets: int = 0
    bytes: int = 0
    const: bool = False


@dataclass(slots=True)
class Stored:
    """An entry in the table, with its direct counter and meter; the generated code counts in it."""

    match: Match
    priority: int
    action: str
    params: tuple[int, ...]
    const: bool = False
    packets: int = 0
    bytes: int = 0
    meter: Bucket = field(default_factory=Bucket)

    def shown(self) -> Entry:
        """What the control plane gets to see."""
        return Entry(self.match, self.priority, self.action, self.params, self.packets, self.bytes, self.const)


@dataclass
class Binding:
    """What the generated module knows about an action of a table."""

    function: Action
    next_on_hit: int
    next_on_miss: int


# What a lookup returns to the generated code: (action, its parameters, next node, entry or None).
Result = tuple[Action, tuple[int, ...], int, Stored | None]


class Table:
    """A match-action table. Match tuples have one element for each key:
    exact -> int; lpm -> (value, prefix length); ternary -> (value, mask); range -> (low, high);
    optional -> int or None. Priorities are P4Runtime's: larger wins; 0 in exact and lpm tables."""

    def __init__(
        self,
        name: str,
        *,
        keys: list[KeyField],
        max_size: int,
        action_params: dict[str, list[tuple[str, int]]],
        default_action: tuple[str, tuple[int, ...]] | None,
        default_is_const: bool = False,
        has_direct_counter: bool = False,
        direct_meter_unit: str | None = None,
        supports_timeout: bool = False,
    ) -> None:
        self.name = name
        self.keys = keys
        self.max_size = max_size
        self.action_params = action_params
        self.action_names = list(action_params)
        self.default_action = default_action
        self.default_is_const = default_is_const
        self.has_direct_counter = has_direct_counter
        self.direct_meter_unit = direct_meter_unit
        self.supports_timeout = supports_timeout
        self.const = False
        self.clock = microseconds  # of the direct meters; tests may replace it
        self._initial_default = default_action
        self._entries: dict[tuple[Match, int], Stored] = {}
        self._lookup = make_lookup([k.match_type for k in keys], [k.bitwidth for k in keys])
        self._exact = isinstance(self._lookup, ExactLookup)
        self._needs_priority = any(k.match_type in ("ternary", "range", "optional") for k in keys)
        self._bindings: dict[str, Binding] = {}
        self._miss: Result = (_nothing, (), 0, None)
        self.get = self._lookup.cache.get  # the generated code calls get(key), then miss(key) on None

    @property
    def has_direct_meter(self) -> bool:
        return self.direct_meter_unit is not None

    # ---- control plane

    def insert(self, match: Match, priority: int, action: str, params: tuple[int, ...]) -> None:
        """Add an entry. KeyError for an unknown action, ValueError for a malformed match or parameter."""
        identity = self._writable(match, priority)
        self._check_action(action, params)
        if identity in self._entries:
            raise EntryExists(f"table {self.name} already has an entry for {match}")
        if len(self._entries) >= self.max_size:
            raise TableFull(f"table {self.name} holds {self.max_size} entries and is full")
        self._put(Stored(*identity, action, params))

    def modify(self, match: Match, priority: int, action: str, params: tuple[int, ...]) -> None:
        """Give an entry another action; its direct counter goes on."""
        identity = self._writable(match, priority)
        self._check_action(action, params)
        entry = self._existing(identity)
        entry.action, entry.params = action, params
        self._put(entry)

    def delete(self, match: Match, priority: int) -> None:
        """Remove an entry."""
        identity = self._writable(match, priority)
        self._existing(identity)
        del self._entries[identity]
        self._lookup.remove(*identity)
        self._forget_cached()

    def entries(self) -> Iterator[Entry]:
        """All entries, in the order in which they were added."""
        return iter([entry.shown() for entry in self._entries.values()])

    def entry(self, match: Match, priority: int) -> Entry:
        """The entry with this match; EntryMissing when there is none."""
        return self._existing(self._identity(match, priority)).shown()

    def set_default(self, action: str, params: tuple[int, ...]) -> None:
        """Set what a miss executes."""
        if self.default_is_const:
            raise TableIsConst(f"the default action of table {self.name} is const")
        self._check_action(action, params)
        self.default_action = (action, params)
        self._bind_default()

    def reset_default(self) -> None:
        """Go back to the default action that the program declares."""
        self.default_action = self._initial_default
        self._bind_default()

    def configure_meter(self, match: Match, priority: int, config: MeterConfig | None) -> None:
        """Set the rates of an entry's direct meter; None removes them."""
        self._existing(self._identity(match, priority)).meter.configure(config, self.clock())

    def read_meter(self, match: Match, priority: int) -> MeterConfig | None:
        """The rates of an entry's direct meter, None when there are none."""
        return self._existing(self._identity(match, priority)).meter.config

    def read_counter(self, match: Match, priority: int) -> tuple[int, int]:
        """(packets, bytes) of an entry's direct counter."""
        entry = self._existing(self._identity(match, priority))
        return entry.packets, entry.bytes

    def write_counter(self, match: Match, priority: int, packets: int, bytes_: int) -> None:
        """Set an entry's direct counter; those of const entries can be set too."""
        entry = self._existing(self._identity(match, priority))
        entry.packets, entry.bytes = packets, bytes_

    # ---- generated code

    def miss(self, key: Any) -> Result:
        """The result for a key that `get` does not know."""
        if self._exact:
            return self._miss
        result: Result = self._lookup.search(key) or self._miss
        cache = self._lookup.cache
        if len(cache) >= CACHE_SIZE:
            cache.clear()
        cache[key] = result
        return result

    def meter_color(self, entry: Stored, length: int) -> int:
        """Run a packet of `length` bytes through an entry's direct meter."""
        return entry.meter.execute(1 if self.direct_meter_unit == "packets" else length, self.clock())

    def bind(self, bindings: dict[str, Binding], const_entries: list[Entry]) -> None:
        """Connect the table to the generated module and add the program's own entries."""
        self._bindings = bindings
        self._bind_default()
        for entry in const_entries:
            identity = self._identity(entry.match, entry.priority)
            if identity in self._entries:
                raise EntryExists(f"table {self.name}: duplicate const entry {entry.match}")
            self._put(Stored(*identity, entry.action, entry.params, const=True))
        self.const = bool(const_entries)

    # ---- helpers

    def _put(self, entry: Stored) -> None:
        self._entries[entry.match, entry.priority] = entry
        binding = self._bindings[entry.action]
        result: Result = (binding.function, entry.params, binding.next_on_hit, entry)
        self._lookup.add(entry.match, entry.priority, result)
        self._forget_cached()

    def _forget_cached(self) -> None:
        if not self._exact:
            self._lookup.cache.clear()

    def _bind_default(self) -> None:
        if self.default_action is not None:
            action, params = self.default_action
            binding = self._bindings[action]
            self._miss = (binding.function, params, binding.next_on_miss, None)
        self._forget_cached()

    def _identity(self, match: Match, priority: int) -> tuple[Match, int]:
        if len(match) != len(self.keys):
            raise ValueError(f"table {self.name} has {len(self.keys)} keys, the match has {len(match)}")
        if self._needs_priority and priority <= 0:
            raise ValueError(f"table {self.name} needs a priority above 0")
        if not self._needs_priority and priority != 0:
            raise ValueError(f"table {self.name} takes no priority")
        parts = zip(self.keys, match, strict=True)
        return tuple(canonical(k.match_type, k.bitwidth, part, k.name) for k, part in parts), priority

    def _writable(self, match: Match, priority: int) -> tuple[Match, int]:
        if self.const:
            raise TableIsConst(f"the entries of table {self.name} are const")
        return self._identity(match, priority)

    def _existing(self, identity: tuple[Match, int]) -> Stored:
        try:
            return self._entries[identity]
        except KeyError:
            raise EntryMissing(f"table {self.name} has no entry for {identity[0]}") from None

    def _check_action(self, action: str, params: tuple[int, ...]) -> None:
        if action not in self.action_params:
            raise KeyError(f"table {self.name} has no action {action}; it has {', '.join(self.action_names)}")
        widths = self.action_params[action]
        if len(params) != len(widths):
            raise ValueError(f"action {action} takes {len(widths)} parameters, not {len(params)}")
        for value, (name, width) in zip(params, widths, strict=True):
            if not 0 <= value < 1 << width:
                raise ValueError(f"action {action}: {name} = {value} does not fit {width} bits")


def _nothing(_fields: list[Any]) -> None:
    """The action of a table without a default action."""
