"""Match-action tables of the Python executor: what the control plane sees and what the generated code calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from p4reduce_switch.program.errors import EntryExists, EntryMissing, TableFull, TableIsConst
from p4reduce_switch.program.state.lookup import CACHE_SIZE, ExactLookup, Match, canonical, make_lookup
from p4reduce_switch.program.state.profiles import HASH_MASK, ActionProfile, Choices, Target, check_call
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
    """An entry as it was when it was read; packets and bytes are its direct counter, if the table has one.

    In a table with an action profile `target` is what it refers to, and `action` is empty. In a table that supports
    timeouts `hit_us` is when a packet has hit it last, or it was inserted, on the monotonic clock.
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
    """An entry in the table, with its direct counter and meter; the generated code counts in it."""

    match: Match
    priority: int
    action: str
    params: tuple[int, ...]
    const: bool = False
    packets: int = 0
    bytes: int = 0
    meter: Bucket = field(default_factory=Bucket)
    target: Target | None = None
    choices: Choices | None = None
    hit_us: int = 0

    def shown(self) -> Entry:
        """What the control plane gets to see."""
        return Entry(
            self.match,
            self.priority,
            self.action,
            self.params,
            self.packets,
            self.bytes,
            self.const,
            self.target,
            self.hit_us,
        )


@dataclass
class Binding:
    """What the generated module knows about an action of a table."""

    function: Action
    next_on_hit: int
    next_on_miss: int


# What a lookup returns to the generated code: (action, its parameters, next node, entry or None).
Result = tuple[Action, tuple[int, ...], int, Stored | None]
# What it returns for an entry that refers to an action profile: `choose` makes a Result of it.
Open = tuple[None, list[tuple[Action, tuple[int, ...], int]], int, Stored]


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
        profile: ActionProfile | None = None,
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
        self.profile = profile
        self.const = False
        self.clock = microseconds  # of direct meters and hits; tests may replace it
        self._initial_default = default_action
        self._entries: dict[tuple[Match, int], Stored] = {}
        self._lookup = make_lookup([k.match_type for k in keys], [k.bitwidth for k in keys])
        self._exact = isinstance(self._lookup, ExactLookup)
        self._needs_priority = any(k.match_type in ("ternary", "range", "optional") for k in keys)
        self._bindings: dict[str, Binding] = {}
        self._miss: Result = (_nothing, (), 0, None)
        self._bound: dict[Choices, list[tuple[Action, tuple[int, ...], int]]] = {}
        self._next_without_member = 0
        if profile is not None:
            profile.attach(self, action_params)
        self.get = self._lookup.cache.get  # the generated code calls get(key), then miss(key) on None

    @property
    def has_direct_meter(self) -> bool:
        return self.direct_meter_unit is not None

    # ---- control plane

    def insert(self, match: Match, priority: int, action: str, params: tuple[int, ...]) -> None:
        """Add an entry. KeyError for an unknown action, ValueError for a malformed match or parameter."""
        identity = self._writable(match, priority)
        self._check_direct()
        self._check_action(action, params)
        self._check_room(identity)
        self._put(Stored(*identity, action, params))

    def modify(self, match: Match, priority: int, action: str, params: tuple[int, ...]) -> None:
        """Give an entry another action; its direct counter goes on."""
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
        """Let an entry refer to something else; its direct counter goes on."""
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
        self._lookup.remove(*identity)
        self._forget_cached()
        if self.profile is not None and entry.choices is not None:
            self.profile.release(entry.choices)

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

    def allow_changes(self, max_size: int) -> None:
        """From now on the entries that the program declares are like any others, and `max_size` in all fit."""
        self.const, self.max_size = False, max_size
        for entry in self._entries.values():
            entry.const = False

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

    def now(self) -> int:
        """The time of a hit."""
        return self.clock()

    def choose(self, found: Open, hashed: int) -> Result:
        """What runs for an entry that refers to an action profile."""
        _, calls, _, entry = found
        if not calls:
            return _nothing, (), self._next_without_member, entry
        return *calls[(hashed & HASH_MASK) % len(calls)], entry

    def meter_color(self, entry: Stored, length: int) -> int:
        """Run a packet of `length` bytes through an entry's direct meter."""
        return entry.meter.execute(1 if self.direct_meter_unit == "packets" else length, self.clock())

    def bind(self, bindings: dict[str, Binding], const_entries: list[Entry], next_without_member: int = 0) -> None:
        """Connect the table to the generated module and add the program's own entries."""
        self._bindings = bindings
        self._next_without_member = next_without_member
        self._bind_default()
        for entry in const_entries:
            identity = self._identity(entry.match, entry.priority)
            if identity in self._entries:
                raise EntryExists(f"table {self.name}: duplicate const entry {entry.match}")
            self._put(Stored(*identity, entry.action, entry.params, const=True))
        self.const = bool(const_entries)

    # ---- the action profile

    def choices_changed(self, choices: Choices) -> None:
        """Choices of the action profile have other calls now."""
        if choices in self._bound:
            self._bound[choices][:] = self._bound_calls(choices)

    def choices_gone(self, choices: Choices) -> None:
        """Nothing will refer to these any more."""
        self._bound.pop(choices, None)

    def _bound_calls(self, choices: Choices) -> list[tuple[Action, tuple[int, ...], int]]:
        bindings = ((self._bindings[action], params) for action, params in choices.calls)
        return [(binding.function, params, binding.next_on_hit) for binding, params in bindings]

    # ---- helpers

    def _put(self, entry: Stored) -> None:
        if self.supports_timeout and (entry.match, entry.priority) not in self._entries:
            entry.hit_us = self.clock()
        self._entries[entry.match, entry.priority] = entry
        result: Result | Open
        if entry.choices is not None:
            if entry.choices not in self._bound:
                self._bound[entry.choices] = self._bound_calls(entry.choices)
            result = (None, self._bound[entry.choices], 0, entry)
        else:
            binding = self._bindings[entry.action]
            result = (binding.function, entry.params, binding.next_on_hit, entry)
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

    def _check_room(self, identity: tuple[Match, int]) -> None:
        if identity in self._entries:
            raise EntryExists(f"table {self.name} already has an entry for {identity[0]}")
        if len(self._entries) >= self.max_size:
            raise TableFull(f"table {self.name} holds {self.max_size} entries and is full")

    def _check_direct(self) -> None:
        if self.profile is not None:
            raise ValueError(f"table {self.name} has an action profile: its entries refer to members or groups")

    def _check_profile(self) -> ActionProfile:
        if self.profile is None:
            raise ValueError(f"table {self.name} has no action profile: its entries have actions")
        return self.profile

    def _check_action(self, action: str, params: tuple[int, ...]) -> None:
        check_call(f"table {self.name}", self.action_params, action, params)


def _nothing(_fields: list[Any]) -> None:
    """The action of a table without a default action."""
