"""What a controller writes to a switch and reads from it, by name: frozen dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import NamedTuple

MatchValue = int | tuple[int, int]
"""exact and optional: value; lpm: (value, prefix length); ternary: (value, mask); range: (low, high)."""


@dataclass(frozen=True)
class CounterData:
    """What a counter holds."""

    packets: int
    bytes: int


@dataclass(frozen=True)
class MeterConfig:
    """The rates of a two-rate three-colour marker (RFC 2698): a second's packets or bytes, as the meter declares.

    A frame that finds no room in the peak bucket (`pir`, `pburst`) is red, one that finds none in the committed bucket
    (`cir`, `cburst`) yellow, any other green.
    """

    cir: int
    cburst: int
    pir: int
    pburst: int


class WeightedAction(NamedTuple):
    """One action of an action set. `watch_port`: left out while that port is down; 0 for no port."""

    action: str
    params: Mapping[str, int]
    weight: int = 1
    watch_port: int = 0


@dataclass(frozen=True)
class TableEntry:
    """An entry of a table, or its default entry (`is_default`, then no match and no priority).

    A key left out of `match` is "don't care" (not allowed for exact keys). `priority`: larger is preferred; above 0
    for tables with ternary, range or optional keys, 0 for others. `action` None: for deletes, to keep the action in a
    modify, or to reset a default entry. Reads that ask for it fill in `counter`, on tables with a direct counter, and
    `meter`, on tables with a direct meter that has rates. A modify without `meter` takes the rates away, but on BMv2,
    which keeps them.

    The entries of a table with an action profile have instead of `action` a `member` of it, and with an action selector
    a `group` or an `action_set`. `idle_timeout_ns`: the switch sends a notification when no
    frame has hit the entry for that long.
    """

    table: str
    match: Mapping[str, MatchValue] = field(default_factory=dict)
    action: str | None = None
    params: Mapping[str, int] = field(default_factory=dict)
    priority: int = 0
    is_default: bool = False
    counter: CounterData | None = None
    meter: MeterConfig | None = None
    member: int | None = None
    group: int | None = None
    action_set: tuple[WeightedAction, ...] | None = None
    idle_timeout_ns: int = 0

    def __repr__(self) -> str:
        """All fields, but of those called "secret" no values: errors and logs name entries."""
        shown = {item.name: getattr(self, item.name) for item in fields(self)}
        for name in ("match", "params"):
            shown[name] = {key: "hidden" if key == "secret" else value for key, value in shown[name].items()}
        return f"TableEntry({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


@dataclass(frozen=True)
class CounterEntry:
    """One cell of an indirect counter; index None in a read stands for all cells."""

    counter: str
    index: int | None = None
    packets: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class DirectCounterEntry:
    """The direct counter of one table entry."""

    entry: TableEntry
    packets: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class MeterEntry:
    """One cell of an indirect meter; index None in a write stands for all cells. Config None: every frame is green."""

    meter: str
    index: int | None = None
    config: MeterConfig | None = None


@dataclass(frozen=True)
class DirectMeterEntry:
    """The direct meter of one table entry. Config None: every frame is green."""

    entry: TableEntry
    config: MeterConfig | None = None


@dataclass(frozen=True)
class MulticastGroup:
    """A multicast group: one copy of a frame for each (egress port, instance)."""

    group_id: int
    replicas: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class CloneSession:
    """A clone (mirror) session: copies cut to `packet_length_bytes` (0: whole) for each (egress port, instance)."""

    session_id: int
    replicas: tuple[tuple[int, int], ...] = ()
    packet_length_bytes: int = 0
    class_of_service: int = 0


@dataclass(frozen=True)
class DigestConfig:
    """How a digest is sent: at most `max_list_size` in a message, held back at most `max_timeout_ns`.

    An equal digest is not sent again before its list was acknowledged or `ack_timeout_ns` has passed.
    """

    name: str
    max_timeout_ns: int = 0
    max_list_size: int = 1
    ack_timeout_ns: int = 1_000_000_000


@dataclass(frozen=True)
class ActionProfileMember:
    """A member of an action profile: an action with its arguments. `action` None: for deletes."""

    profile: str
    member_id: int
    action: str | None = None
    params: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ActionProfileGroup:
    """A group of an action selector: (member, weight, watch port) of each; port 0 stands for none.

    `max_size` limits the sum of the weights; 0 for no limit of its own.
    """

    profile: str
    group_id: int
    members: tuple[tuple[int, int, int], ...] = ()
    max_size: int = 0


@dataclass(frozen=True)
class RegisterEntry:
    """One cell of a register; index None stands for all cells. BMv2 serves no registers."""

    register: str
    index: int | None = None
    value: int | None = None


@dataclass(frozen=True)
class ValueSetEntry:
    """All members of a parser value set, in place of those that it had. BMv2 serves no value sets.

    Each has a value for each key of the set, in order; None for a key that matches all.
    """

    value_set: str
    members: tuple[tuple[MatchValue | None, ...], ...] = ()


Entry = (
    TableEntry
    | CounterEntry
    | DirectCounterEntry
    | MeterEntry
    | DirectMeterEntry
    | MulticastGroup
    | CloneSession
    | DigestConfig
    | ActionProfileMember
    | ActionProfileGroup
    | RegisterEntry
    | ValueSetEntry
)
"""Everything `Client.write` takes."""
