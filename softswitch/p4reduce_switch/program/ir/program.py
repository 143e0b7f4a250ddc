"""A program: declarations, actions, tables, parser, controls, deparser, checksums, digests and field lists.

Parsers, controls and actions are graphs: nodes by number, each with its successors (None is the end).
`flow.py` has the algorithms with which a back-end writes one as nested statements.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

from msgspec import Struct

from p4reduce_switch.program.ir.expressions import Condition
from p4reduce_switch.program.ir.externs import ActionProfile, Calculation, Counter, DirectMeter, Meter, Register
from p4reduce_switch.program.ir.intervals import Data, Node
from p4reduce_switch.program.ir.places import FieldRef, Header
from p4reduce_switch.program.ir.statements import Instruction, ParserOperation


class Source(Struct, frozen=True):
    """A place in the P4 program, and its text."""

    file: str
    line: int
    code: str

    def __str__(self) -> str:
        return f"{self.file}({self.line})"


# ---- checksums


class Checksum(Node, frozen=True):
    """A field that is set to, or verified against, the result of a calculation if the condition holds."""

    name: str
    target: FieldRef
    calculation: Calculation
    condition: Condition
    verify: bool
    update: bool


# ---- actions and tables


class Primitive(Struct, frozen=True):
    """A primitive call of the JSON; its instructions in the action begin at `start`."""

    start: int
    op: str
    source: Source | None


class Action(Node, frozen=True):
    """An action; `parameters` are name and width of each."""

    id: int
    name: str
    parameters: tuple[tuple[str, int], ...]
    code: tuple[Instruction, ...]
    primitives: tuple[Primitive, ...] = ()
    source: Source | None = None


class MatchKind(StrEnum):
    """The match kind of a key."""

    EXACT = "exact"
    LPM = "lpm"
    TERNARY = "ternary"
    RANGE = "range"
    OPTIONAL = "optional"


RANKED = frozenset({MatchKind.TERNARY, MatchKind.RANGE, MatchKind.OPTIONAL})
"""Kinds whose entries have a priority."""


class Key(Node, frozen=True):
    """A key of a table; `value` is truncated to `bits` and masked."""

    name: str
    kind: MatchKind
    bits: int
    value: Data


class KeyTest(NamedTuple):
    """The test of one key: `key & mask == value`, and key in low..high."""

    mask: int
    value: int
    low: int
    high: int

    @classmethod
    def of(cls, kind: str, bits: int, given: Any) -> KeyTest:
        """Return the test of a key of a match kind; bits outside the mask are cleared.

        `given`: exact -> int; lpm -> (value, prefix length); ternary -> (value, mask); range -> (low, high);
        optional -> int or None.
        """
        full = (1 << bits) - 1
        if kind == "range":
            return cls(0, 0, *given)
        if kind == "lpm":
            given = given[0], full ^ (full >> given[1])
        elif kind != "ternary":
            given = (0, 0) if given is None else (given, full)
        value, mask = given
        return cls(mask, value & mask, 0, full)


class ConstEntry(Node, frozen=True):
    """An entry that the program declares; the larger priority wins."""

    match: tuple[KeyTest, ...]
    priority: int
    action: Action
    arguments: tuple[int, ...]


class Table(Node, frozen=True):
    """A match-action table; the entries of one with a `profile` refer to members or groups of it."""

    name: str
    keys: tuple[Key, ...]
    max_size: int
    actions: tuple[Action, ...]
    default: tuple[Action, tuple[int, ...]] | None
    default_is_const: bool
    entries: tuple[ConstEntry, ...]
    has_direct_counter: bool
    direct_meter: DirectMeter | None
    supports_timeout: bool
    profile: ActionProfile | None = None
    source: Source | None = None


# ---- graphs


class Apply(Node, frozen=True):
    """Apply a table; the successor depends on hit or miss, and on the action that ran.

    `next_on_hit` and `next_on_miss` have an element for each of the table's actions. No action runs on a miss in a
    table that has no default action, then `next_without_default` follows, and on a hit that leads to a group without
    members, then `next_without_member`.
    """

    table: Table
    next_on_hit: tuple[int | None, ...]
    next_on_miss: tuple[int | None, ...]
    next_without_default: int | None
    next_without_member: int | None

    @property
    def successors(self) -> tuple[int | None, ...]:
        """The distinct successors."""
        missing = () if self.table.default else (self.next_without_default,)
        empty = (self.next_without_member,) if self.table.profile else ()
        return tuple(dict.fromkeys((*missing, *self.next_on_miss, *self.next_on_hit, *empty)))


class Branch(Node, frozen=True):
    """Branch on a condition."""

    condition: Condition
    yes: int | None
    no: int | None
    name: str = ""
    source: Source | None = None

    @property
    def successors(self) -> tuple[int | None, ...]:
        """The distinct successors."""
        return tuple(dict.fromkeys((self.yes, self.no)))


class Call(Node, frozen=True):
    """Call an action directly."""

    action: Action
    next: int | None

    @property
    def successors(self) -> tuple[int | None, ...]:
        """The next node, as the only one."""
        return (self.next,)


ControlNode = Apply | Branch | Call


class Control(Node, frozen=True, dict=True):
    """Ingress or egress."""

    name: str
    entry: int | None
    nodes: tuple[ControlNode, ...]

    @cached_property
    def graph(self) -> Mapping[int, tuple[int | None, ...]]:
        """Successors of each node."""
        return {index: node.successors for index, node in enumerate(self.nodes)}


class Case(Node, frozen=True):
    """A case of a select: for each key a mask and a value."""

    tests: tuple[tuple[int, int], ...]
    """(mask, value) for each key; a mask of 0 matches any value."""
    next: int | None


class ValueSet(Node, frozen=True):
    """A parser value set for keys of these widths in bits; the control plane writes its members."""

    name: str
    widths: tuple[int, ...]


class SetCase(Node, frozen=True):
    """A case of a select that matches if a value set contains the keys."""

    value_set: ValueSet
    next: int | None


class State(Node, frozen=True):
    """A parser state: operations, then the first case that matches, or `default`."""

    name: str
    operations: tuple[ParserOperation, ...]
    keys: tuple[tuple[Data, int], ...]
    """Value, truncated, and width of each."""
    cases: tuple[Case | SetCase, ...]
    default: int | None

    @property
    def successors(self) -> tuple[int | None, ...]:
        """The distinct successors."""
        return tuple(dict.fromkeys((*(case.next for case in self.cases), self.default)))


class Parser(Node, frozen=True, dict=True):
    """The parser; without an entry it extracts nothing."""

    entry: int | None
    states: tuple[State, ...]

    @cached_property
    def graph(self) -> Mapping[int, tuple[int | None, ...]]:
        """Successors of each state."""
        return {index: state.successors for index, state in enumerate(self.states)}


class ParserErrors(Struct, frozen=True):
    """The numbers of the core library's parser errors."""

    no_error: int
    packet_too_short: int
    stack_out_of_bounds: int
    header_too_short: int
    parser_invalid_argument: int
    names: Mapping[int, str] = {}
    """The names of all errors, those of the program included."""


# ---- the rest


class StandardMetadata(Struct, frozen=True):
    """Slots of the standard metadata; None for a field that the program does not have."""

    egress_spec: int
    egress_port: int
    instance_type: int
    ingress_port: int
    packet_length: int
    mcast_grp: int | None
    egress_rid: int | None
    parser_error: int | None
    checksum_error: int | None
    ingress_time: int | None
    egress_time: int | None
    enqueue_time: int | None
    enqueue_depth: int | None
    dequeue_delay: int | None
    dequeue_depth: int | None
    queue: int | None
    priority: int | None

    @property
    def of_queues(self) -> frozenset[int | None]:
        """The slots that tell of the queue of a packet."""
        return frozenset((self.enqueue_time, self.enqueue_depth, self.dequeue_delay, self.dequeue_depth, self.queue))


class Slot(Struct, frozen=True):
    """A field, or a header's validity, and its width in bits."""

    number: int
    bits: int


class Digest(Struct, frozen=True):
    """A digest: a name and fields."""

    name: str
    fields: tuple[Slot, ...]


class TargetOptions(Struct, frozen=True):
    """Options of simple_switch that are compiled into a program."""

    drop_port: int = 511
    """A packet with this egress_spec is dropped."""
    queues: bool = False
    """Whether packets pass egress queues, even if the program does not use them."""
    threads: int = 1
    """Number of threads that run its frames at the same time, where the program allows it."""

    @property
    def not_dropped(self) -> int:
        """The egress_spec with which simple_switch begins egress, before it is cut to the field's width."""
        return self.drop_port + 1


class Program(Node, frozen=True):
    """A v1model program. `slots` is the number of slots of a packet, those of the target (`packet.py`) included."""

    slots: int
    headers: tuple[Header, ...]
    standard: StandardMetadata
    errors: ParserErrors
    counters: tuple[Counter, ...]
    registers: tuple[Register, ...]
    meters: tuple[Meter, ...]
    calculations: tuple[Calculation, ...]
    action_profiles: tuple[ActionProfile, ...]
    value_sets: tuple[ValueSet, ...]
    checksums: tuple[Checksum, ...]
    actions: tuple[Action, ...]
    parser: Parser
    ingress: Control
    egress: Control
    deparser: tuple[Header, ...]
    digests: Mapping[int, Digest]
    field_lists: Mapping[int, tuple[Slot, ...]]
    target: TargetOptions

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables of ingress and egress."""
        nodes = (*self.ingress.nodes, *self.egress.nodes)
        return tuple(node.table for node in nodes if isinstance(node, Apply))
