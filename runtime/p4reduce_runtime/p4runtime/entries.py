"""What a controller writes to a switch and reads from it, by name: frozen dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

MatchValue = int | tuple[int, int]
"""exact and optional: value; lpm: (value, prefix length); ternary: (value, mask); range: (low, high)."""


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


@dataclass(frozen=True)
class TableEntry:
    """An entry of a table, or its default entry (`is_default`, then no match and no priority).

    A key left out of `match` is "don't care" (not allowed for exact keys). `priority`: larger is preferred; above 0
    for tables with ternary, range or optional keys, 0 for others. `action` None: for deletes, to keep the action in a
    modify, or to reset a default entry.
    """

    table: str
    match: Mapping[str, MatchValue] = field(default_factory=dict)
    action: str | None = None
    params: Mapping[str, int] = field(default_factory=dict)
    priority: int = 0
    is_default: bool = False

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
class MeterEntry:
    """One cell of an indirect meter; index None in a write stands for all cells. Config None: every frame is green."""

    meter: str
    index: int | None = None
    config: MeterConfig | None = None


@dataclass(frozen=True)
class MulticastGroup:
    """A multicast group: one copy of a frame for each (egress port, instance)."""

    group_id: int
    replicas: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class DigestConfig:
    """How a digest is sent: at most `max_list_size` in a message, held back at most `max_timeout_ns`.

    An equal digest is not sent again before its list was acknowledged or `ack_timeout_ns` has passed.
    """

    name: str
    max_timeout_ns: int = 0
    max_list_size: int = 1
    ack_timeout_ns: int = 1_000_000_000


Entry = TableEntry | CounterEntry | MeterEntry | MulticastGroup | DigestConfig
"""Everything `Client.write` takes."""
