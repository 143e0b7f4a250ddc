"""Statements of actions and parser states. Every side effect is a statement.

Values are truncated to the width of their target before: a back-end stores them as they are. Accesses to
registers, counters and meters at an index out of range have no effect, as on BMv2.
"""

from __future__ import annotations

from dataclasses import dataclass

from p4reduce_switch.program.ir.expressions import Condition
from p4reduce_switch.program.ir.externs import Counter, Meter, Register
from p4reduce_switch.program.ir.intervals import Data
from p4reduce_switch.program.ir.places import FieldRef, HeaderRef, HeaderStack, Stack, UnionRef, UnionStack


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """Store a value into a field."""

    target: FieldRef
    value: Data


@dataclass(frozen=True, slots=True, eq=False)
class RegisterWrite:
    """Write a register cell."""

    register: Register
    index: Data
    value: Data


Assignment = Store | RegisterWrite


@dataclass(frozen=True, slots=True, eq=False)
class RegisterRead:
    """Execute `into` with the cell as its Result; no effect if the index is out of range."""

    register: Register
    index: Data
    into: Assignment


@dataclass(frozen=True, slots=True, eq=False)
class MeterExecute:
    """Execute `into` with the packet's color (0 to 2) as its Result."""

    meter: Meter
    index: Data
    into: Assignment


@dataclass(frozen=True, slots=True, eq=False)
class RandomNumber:
    """Execute `into` with a number of low..high as its Result; no effect if that is empty."""

    low: Data
    high: Data
    into: Assignment


@dataclass(frozen=True, slots=True, eq=False)
class Count:
    """Count a packet in a counter cell."""

    counter: Counter
    index: Data


@dataclass(frozen=True, slots=True, eq=False)
class CopyVarbit:
    """Copy a varbit field's value and length."""

    target: FieldRef
    source: FieldRef


@dataclass(frozen=True, slots=True, eq=False)
class CopyHeader:
    """Copy a header to another of the same type; the other members of its union become invalid."""

    target: HeaderRef
    source: HeaderRef


@dataclass(frozen=True, slots=True, eq=False)
class CopyUnion:
    """Copy a union to another with the same members."""

    target: UnionRef
    source: UnionRef


@dataclass(frozen=True, slots=True, eq=False)
class CopyStack:
    """Copy a stack to another of the same type and size, its `next` counter included."""

    target: Stack
    source: Stack


@dataclass(frozen=True, slots=True, eq=False)
class AddHeader:
    """setValid: if the header was invalid, its fields become 0; the other members of its union become invalid."""

    header: HeaderRef


@dataclass(frozen=True, slots=True, eq=False)
class RemoveHeader:
    """setInvalid."""

    header: HeaderRef


@dataclass(frozen=True, slots=True, eq=False)
class PushFront:
    """push_front: elements move back by `count`; the first ones become invalid."""

    stack: HeaderStack | UnionStack
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class PopFront:
    """pop_front: elements move forward by `count`; the last ones become invalid."""

    stack: HeaderStack | UnionStack
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class Exit:
    """exit: the control ends after the enclosing action."""


@dataclass(frozen=True, slots=True, eq=False)
class Clone:
    """clone: after the control, send a copy to the session's ports, with the fields of a field list."""

    session: Data
    field_list: Data


@dataclass(frozen=True, slots=True, eq=False)
class Resubmit:
    """resubmit: after ingress, the received frame starts ingress again, with the fields of a field list."""

    field_list: Data


@dataclass(frozen=True, slots=True, eq=False)
class Recirculate:
    """recirculate: the deparsed frame starts ingress again, with the fields of a field list."""

    field_list: Data


@dataclass(frozen=True, slots=True, eq=False)
class SendDigest:
    """digest: after ingress, send the fields to the control plane."""

    digest: Data


@dataclass(frozen=True, slots=True, eq=False)
class Truncate:
    """truncate: send at most this many bytes."""

    length: Data


@dataclass(frozen=True, slots=True, eq=False)
class Assert:
    """assert, assume: an ExecutionError unless the condition holds."""

    condition: Condition


@dataclass(frozen=True, slots=True, eq=False)
class Log:
    """log_msg: `{}` in the text is replaced by the values."""

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
    """Jump to instruction `target`; the number of instructions is the end of the action."""

    target: int


@dataclass(frozen=True, slots=True, eq=False)
class JumpUnless:
    """Jump if the condition does not hold."""

    condition: Condition
    target: int


Instruction = Statement | Jump | JumpUnless


# ---- parser operations; each may end parsing with an error


@dataclass(frozen=True, slots=True, eq=False)
class Extract:
    """Extract a header: PacketTooShort. `bits` is the length of its varbit field.

    For `stack.next`: StackOutOfBounds. With a varbit field: ParserInvalidArgument, HeaderTooShort.
    """

    header: HeaderRef
    bits: Data | None


@dataclass(frozen=True, slots=True, eq=False)
class Advance:
    """advance: ParserInvalidArgument unless whole bytes, PacketTooShort."""

    bits: Data


@dataclass(frozen=True, slots=True, eq=False)
class Verify:
    """verify: parsing ends with the error of that number unless the condition holds."""

    condition: Condition
    error: Data


@dataclass(frozen=True, slots=True, eq=False)
class RequireBytes:
    """PacketTooShort unless this many bytes follow; they are not skipped."""

    count: int


@dataclass(frozen=True, slots=True, eq=False)
class RequireElement:
    """StackOutOfBounds if the stack is empty."""

    stack: Stack


ParserOperation = Statement | Extract | Advance | Verify | RequireBytes | RequireElement
