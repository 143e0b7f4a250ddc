"""Statements: what actions and parser states do. Every side effect is a statement.

Values are cut to what their target holds: a back-end stores them as they are. Accesses to registers,
counters and meters at an index that does not exist do nothing, as on BMv2.
"""

from __future__ import annotations

from dataclasses import dataclass

from p4reduce_switch.program.ir.data import Data
from p4reduce_switch.program.ir.expressions import Condition
from p4reduce_switch.program.ir.externs import Counter, Meter, Register
from p4reduce_switch.program.ir.places import FieldRef, HeaderRef, HeaderStack, Stack, UnionRef, UnionStack


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """A field takes a value."""

    target: FieldRef
    value: Data


@dataclass(frozen=True, slots=True, eq=False)
class RegisterWrite:
    """A register cell takes a value."""

    register: Register
    index: Data
    value: Data


Assignment = Store | RegisterWrite


@dataclass(frozen=True, slots=True, eq=False)
class RegisterRead:
    """`into` with the cell as its Result; nothing when there is no such cell."""

    register: Register
    index: Data
    into: Assignment


@dataclass(frozen=True, slots=True, eq=False)
class MeterExecute:
    """`into` with the packet's color (0 to 2) as its Result."""

    meter: Meter
    index: Data
    into: Assignment


@dataclass(frozen=True, slots=True, eq=False)
class RandomNumber:
    """`into` with a number of low..high as its Result; nothing when that is empty."""

    low: Data
    high: Data
    into: Assignment


@dataclass(frozen=True, slots=True, eq=False)
class Count:
    """One packet more in a counter cell."""

    counter: Counter
    index: Data


@dataclass(frozen=True, slots=True, eq=False)
class CopyVarbit:
    """A varbit field takes another's value and length."""

    target: FieldRef
    source: FieldRef


@dataclass(frozen=True, slots=True, eq=False)
class CopyHeader:
    """A header becomes a copy of another of the same type; the other members of its union become invalid."""

    target: HeaderRef
    source: HeaderRef


@dataclass(frozen=True, slots=True, eq=False)
class CopyUnion:
    """A union becomes a copy of another with the same members."""

    target: UnionRef
    source: UnionRef


@dataclass(frozen=True, slots=True, eq=False)
class CopyStack:
    """A stack becomes a copy of another of the same type and size, its count included."""

    target: Stack
    source: Stack


@dataclass(frozen=True, slots=True, eq=False)
class AddHeader:
    """setValid: a header that was not valid has all fields 0; the other members of its union become invalid."""

    header: HeaderRef


@dataclass(frozen=True, slots=True, eq=False)
class RemoveHeader:
    """setInvalid."""

    header: HeaderRef


@dataclass(frozen=True, slots=True, eq=False)
class PushFront:
    """Elements move back by `count`; the first ones become invalid."""

    stack: HeaderStack | UnionStack
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class PopFront:
    """Elements move forward by `count`; the last ones become invalid."""

    stack: HeaderStack | UnionStack
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class Exit:
    """The control ends when the enclosing action has."""


@dataclass(frozen=True, slots=True, eq=False)
class Clone:
    """A copy goes to the session's ports when the control has ended, with the fields of a field list."""

    session: Data
    field_list: Data


@dataclass(frozen=True, slots=True, eq=False)
class Resubmit:
    """The frame as it came starts again after ingress, with the fields of a field list."""

    field_list: Data


@dataclass(frozen=True, slots=True, eq=False)
class Recirculate:
    """The frame as it leaves starts again, with the fields of a field list."""

    field_list: Data


@dataclass(frozen=True, slots=True, eq=False)
class SendDigest:
    """The fields of a digest go to the control plane after ingress."""

    digest: Data


@dataclass(frozen=True, slots=True, eq=False)
class Truncate:
    """At most this many bytes leave."""

    length: Data


@dataclass(frozen=True, slots=True, eq=False)
class Assert:
    """An ExecutionError unless the condition holds."""

    condition: Condition


@dataclass(frozen=True, slots=True, eq=False)
class Log:
    """A message for whoever debugs the program; `{}` stands for the values."""

    text: str
    values: tuple[Data, ...]


Statement = (
    Store
    | RegisterWrite
    | RegisterRead
    | MeterExecute
    | RandomNumber
    | Count
    | CopyVarbit
    | CopyHeader
    | CopyUnion
    | CopyStack
    | AddHeader
    | RemoveHeader
    | PushFront
    | PopFront
    | Exit
    | Clone
    | Resubmit
    | Recirculate
    | SendDigest
    | Truncate
    | Assert
    | Log
)


@dataclass(frozen=True, slots=True, eq=False)
class Jump:
    """The action goes on at instruction `target`; the number of instructions is its end."""

    target: int


@dataclass(frozen=True, slots=True, eq=False)
class JumpUnless:
    """A jump when the condition does not hold."""

    condition: Condition
    target: int


Instruction = Statement | Jump | JumpUnless


# ---- what only parsers do; each of these may end parsing with an error


@dataclass(frozen=True, slots=True, eq=False)
class Extract:
    """A header is filled from the frame and becomes valid: PacketTooShort. `bits` is the length of its varbit field.

    The next element of a stack: StackOutOfBounds. A varbit field: ParserInvalidArgument, HeaderTooShort.
    """

    header: HeaderRef
    bits: Data | None


@dataclass(frozen=True, slots=True, eq=False)
class Advance:
    """Bits are skipped: ParserInvalidArgument unless whole bytes, PacketTooShort."""

    bits: Data


@dataclass(frozen=True, slots=True, eq=False)
class Verify:
    """Parsing ends with the error of that number unless the condition holds."""

    condition: Condition
    error: Data


@dataclass(frozen=True, slots=True, eq=False)
class RequireBytes:
    """PacketTooShort unless so many bytes follow; they are not skipped."""

    count: int


@dataclass(frozen=True, slots=True, eq=False)
class RequireElement:
    """StackOutOfBounds when the stack is empty."""

    stack: Stack


ParserOperation = Statement | Extract | Advance | Verify | RequireBytes | RequireElement
