"""What an executor is: the interface between the switch, its P4Runtime server, and whatever runs the P4 program.

State is reached through methods alone, so that an executor may keep it where it likes. Between two calls of
`process` everything may be read and written; the caller sees to it that nothing happens at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Protocol

from p4reduce_switch.program.batch import NativeBatch
from p4reduce_switch.program.state.lookup import Match
from p4reduce_switch.program.state.profiles import Group, Member, Target
from p4reduce_switch.program.state.replication import CloneSession, Replica
from p4reduce_switch.program.state.stateful import MeterConfig
from p4reduce_switch.program.state.tables import Entry, KeyField
from p4reduce_switch.program.state.value_sets import KeyTest

DigestHandler = Callable[[str, list[tuple[int, ...]]], None]
"""Takes the name of a digest and its rows."""


class TableState(Protocol):
    """A match-action table.

    Match tuples have one element for each key: exact -> int; lpm -> (value, prefix length);
    ternary -> (value, mask); range -> (low, high); optional -> int or None. Bits that do not matter are
    cleared. Priorities are P4Runtime's: larger wins; 0 in exact and lpm tables.

    Errors: KeyError for an unknown action, ValueError for a malformed match or parameter, and the
    TableErrors of `errors.py`.
    """

    @property
    def name(self) -> str:
        """As the program calls it."""

    @property
    def keys(self) -> Sequence[KeyField]:
        """In the order of match tuples."""

    @property
    def max_size(self) -> int:
        """Entries that it holds at most."""

    @property
    def action_params(self) -> Mapping[str, Sequence[tuple[str, int]]]:
        """For each action the names and widths of its parameters."""

    @property
    def const(self) -> bool:
        """True when the program declares its entries, for good unless `allow_changes` is called."""

    def allow_changes(self, max_size: int) -> None:
        """From now on the entries that the program declares are like any others, and `max_size` in all fit.

        Whether entries were declared const, and how many fit besides, is not in the JSON.
        """

    @property
    def default_action(self) -> tuple[str, tuple[int, ...]] | None:
        """What a miss runs now."""

    @property
    def default_is_const(self) -> bool:
        """True when it cannot be changed."""

    @property
    def has_direct_counter(self) -> bool:
        """True when each entry counts its packets."""

    @property
    def has_direct_meter(self) -> bool:
        """True when each entry meters its packets."""

    @property
    def supports_timeout(self) -> bool:
        """True when entries tell when a packet has hit them last."""

    @property
    def profile(self) -> ActionProfileState | None:
        """What its entries refer to; None when they have actions of their own."""

    def insert(self, match: Match, priority: int, action: str, params: tuple[int, ...]) -> None:
        """Add an entry."""

    def modify(self, match: Match, priority: int, action: str, params: tuple[int, ...]) -> None:
        """Give an entry another action; its direct counter goes on."""

    def insert_reference(self, match: Match, priority: int, target: Target) -> None:
        """Add an entry to a table with an action profile; the ProfileErrors of `errors.py`."""

    def modify_reference(self, match: Match, priority: int, target: Target) -> None:
        """Let an entry of such a table refer to something else; its direct counter goes on."""

    def delete(self, match: Match, priority: int) -> None:
        """Remove an entry."""

    def entries(self) -> Iterator[Entry]:
        """All entries, in the order in which they were added."""

    def entry(self, match: Match, priority: int) -> Entry:
        """The entry with this match; EntryMissing when there is none."""

    def set_default(self, action: str, params: tuple[int, ...]) -> None:
        """Set what a miss runs."""

    def reset_default(self) -> None:
        """Go back to what the program declares."""

    def read_counter(self, match: Match, priority: int) -> tuple[int, int]:
        """(packets, bytes) of an entry's direct counter."""

    def write_counter(self, match: Match, priority: int, packets: int, bytes_: int) -> None:
        """Set an entry's direct counter; those of const entries can be set too."""

    def read_meter(self, match: Match, priority: int) -> MeterConfig | None:
        """The rates of an entry's direct meter, None when there are none."""

    def configure_meter(self, match: Match, priority: int, config: MeterConfig | None) -> None:
        """Set the rates of an entry's direct meter; None removes them."""


class CounterState(Protocol):
    """An indirect counter array. IndexError for an index that does not exist."""

    @property
    def size(self) -> int:
        """How many cells."""

    def read(self, index: int) -> tuple[int, int]:
        """(packets, bytes) of a cell."""

    def write(self, index: int, packets: int, bytes_: int) -> None:
        """Set a cell."""


class RegisterState(Protocol):
    """A register array. IndexError for an index that does not exist, ValueError for a value that does not fit."""

    @property
    def size(self) -> int:
        """How many cells."""

    @property
    def bitwidth(self) -> int:
        """Bits of a cell; cells are unsigned."""

    def read(self, index: int) -> int:
        """What a cell holds."""

    def write(self, index: int, value: int) -> None:
        """Set a cell."""


class MeterState(Protocol):
    """An indirect meter array. IndexError for an index that does not exist, ValueError for rates that make no sense."""

    @property
    def size(self) -> int:
        """How many meters."""

    def read(self, index: int) -> MeterConfig | None:
        """The rates of one index, None when there are none."""

    def configure(self, index: int, config: MeterConfig | None) -> None:
        """Set the rates of one index; None removes them (everything is green)."""


class ValueSetState(Protocol):
    """A parser value set."""

    @property
    def widths(self) -> Sequence[int]:
        """Bits of each key."""

    @property
    def members(self) -> Sequence[tuple[KeyTest, ...]]:
        """What it holds, a test for each key."""

    def set_members(self, members: Sequence[tuple[KeyTest, ...]]) -> None:
        """Set all members at once. ValueError for a member that does not fit the keys."""


class ActionProfileState(Protocol):
    """An action profile or selector: the members, and groups of them, that entries of tables refer to.

    Errors: KeyError for an unknown action, ValueError for ids, arguments, weights and sizes that make no sense, and
    the ProfileErrors of `errors.py`.
    """

    @property
    def name(self) -> str:
        """As the program calls it."""

    @property
    def has_selector(self) -> bool:
        """True when it may have groups."""

    counts_members: bool
    """Whether the sizes of groups count their members; the members' weights otherwise."""

    def members(self) -> Iterator[Member]:
        """All members, in the order in which they were added."""

    def member(self, id: int) -> Member:
        """The member of that id."""

    def insert_member(self, id: int, action: str, params: tuple[int, ...]) -> None:
        """Add a member."""

    def modify_member(self, id: int, action: str, params: tuple[int, ...]) -> None:
        """Give a member another action, wherever it is used."""

    def delete_member(self, id: int) -> None:
        """Remove a member that nothing refers to."""

    def groups(self) -> Iterator[Group]:
        """All groups, in the order in which they were added."""

    def group(self, id: int) -> Group:
        """The group of that id."""

    def insert_group(self, group: Group) -> None:
        """Add a group of members that are there."""

    def modify_group(self, group: Group) -> None:
        """Give a group other members."""

    def delete_group(self, id: int) -> None:
        """Remove a group that nothing refers to."""

    def set_port(self, port: int, up: bool) -> None:
        """A port has come up or gone down: members that watch one that is down are not chosen."""


class ReplicationState(Protocol):
    """The packet replication engine. Copies are made in the order of the replicas."""

    @property
    def multicast_groups(self) -> MutableMapping[int, Sequence[Replica]]:
        """By group id."""

    @property
    def clone_sessions(self) -> MutableMapping[int, CloneSession]:
        """By session id."""


class Executor(Protocol):
    """A loaded P4 program."""

    on_digest: DigestHandler | None
    """Takes each digest, while `process` or `collect` runs."""

    @property
    def description(self) -> str:
        """What runs the program, in a few words."""

    @property
    def batch(self) -> NativeBatch | None:
        """The native function that runs many frames in one call; None where there is none."""

    @property
    def tables(self) -> Mapping[str, TableState]:
        """By name, like everything that follows."""

    @property
    def counters(self) -> Mapping[str, CounterState]:
        """Indirect counters; direct ones are in the tables."""

    @property
    def registers(self) -> Mapping[str, RegisterState]:
        """Registers."""

    @property
    def meters(self) -> Mapping[str, MeterState]:
        """Indirect meters; direct ones are in the tables."""

    @property
    def value_sets(self) -> Mapping[str, ValueSetState]:
        """Parser value sets."""

    @property
    def action_profiles(self) -> Mapping[str, ActionProfileState]:
        """Action profiles and selectors."""

    @property
    def replication(self) -> ReplicationState:
        """Multicast groups and clone sessions."""

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Take one frame that arrived at `port`; returns (port, frame) for each frame to send, in order.

        ExecutionError: the frame met undefined behaviour; nothing is sent, registers and counters
        keep what was written before.
        """

    def collect(self) -> None:
        """After a native batch has stopped with an EVENT: hand out the digest of the frame that ran last.

        ExecutionError: as for `process`; a digest that the frame sent before is handed out first.
        """
