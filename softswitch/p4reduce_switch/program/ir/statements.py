"""Statements of actions and parser states. Every side effect is a statement.

Values are truncated to the width of their target before: a back-end stores them as they are. Accesses to
registers, counters and meters at an index out of range have no effect, as on BMv2.
"""

from __future__ import annotations

from p4reduce_switch.program.ir.expressions import Condition
from p4reduce_switch.program.ir.externs import Counter, Meter, Register
from p4reduce_switch.program.ir.intervals import Data, Node
from p4reduce_switch.program.ir.places import FieldRef, HeaderRef, HeaderStack, Stack, UnionRef, UnionStack


class Store(Node, frozen=True):
    """Store a value into a field."""

    target: FieldRef
    value: Data


class RegisterWrite(Node, frozen=True):
    """Write a register cell."""

    register: Register
    index: Data
    value: Data


Assignment = Store | RegisterWrite


class RegisterRead(Node, frozen=True):
    """Execute `into` with the cell as its Result; no effect if the index is out of range."""

    register: Register
    index: Data
    into: Assignment


class MeterExecute(Node, frozen=True):
    """Execute `into` with the packet's color (0 to 2) as its Result."""

    meter: Meter
    index: Data
    into: Assignment


class RandomNumber(Node, frozen=True):
    """Execute `into` with a number of low..high as its Result; no effect if that is empty."""

    low: Data
    high: Data
    into: Assignment


class Count(Node, frozen=True):
    """Count a packet in a counter cell."""

    counter: Counter
    index: Data


class CopyVarbit(Node, frozen=True):
    """Copy a varbit field's value and length."""

    target: FieldRef
    source: FieldRef


class CopyHeader(Node, frozen=True):
    """Copy a header to another of the same type; the other members of its union become invalid."""

    target: HeaderRef
    source: HeaderRef


class CopyUnion(Node, frozen=True):
    """Copy a union to another with the same members."""

    target: UnionRef
    source: UnionRef


class CopyStack(Node, frozen=True):
    """Copy a stack to another of the same type and size, its `next` counter included."""

    target: Stack
    source: Stack


class AddHeader(Node, frozen=True):
    """setValid: if the header was invalid, its fields become 0; the other members of its union become invalid."""

    header: HeaderRef


class RemoveHeader(Node, frozen=True):
    """setInvalid."""

    header: HeaderRef


class PushFront(Node, frozen=True):
    """push_front: elements move back by `count`; the first ones become invalid."""

    stack: HeaderStack | UnionStack
    count: int


class PopFront(Node, frozen=True):
    """pop_front: elements move forward by `count`; the last ones become invalid."""

    stack: HeaderStack | UnionStack
    count: int


class Exit(Node, frozen=True):
    """exit: the control ends after the enclosing action."""


class Clone(Node, frozen=True):
    """clone: after the control, send a copy to the session's ports, with the fields of a field list."""

    session: Data
    field_list: Data


class Resubmit(Node, frozen=True):
    """resubmit: after ingress, the received frame starts ingress again, with the fields of a field list."""

    field_list: Data


class Recirculate(Node, frozen=True):
    """recirculate: the deparsed frame starts ingress again, with the fields of a field list."""

    field_list: Data


class SendDigest(Node, frozen=True):
    """digest: after ingress, send the fields to the control plane."""

    digest: Data


class Truncate(Node, frozen=True):
    """truncate: send at most this many bytes."""

    length: Data


class Assert(Node, frozen=True):
    """assert, assume: an ExecutionError unless the condition holds."""

    condition: Condition


class Log(Node, frozen=True):
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


class Jump(Node, frozen=True):
    """Jump to instruction `target`; the number of instructions is the end of the action."""

    target: int


class JumpUnless(Node, frozen=True):
    """Jump if the condition does not hold."""

    condition: Condition
    target: int


Instruction = Statement | Jump | JumpUnless


# ---- parser operations; each may end parsing with an error


class Extract(Node, frozen=True):
    """Extract a header: PacketTooShort. `bits` is the length of its varbit field.

    For `stack.next`: StackOutOfBounds. With a varbit field: ParserInvalidArgument, HeaderTooShort.
    """

    header: HeaderRef
    bits: Data | None


class Advance(Node, frozen=True):
    """advance: ParserInvalidArgument unless whole bytes, PacketTooShort."""

    bits: Data


class Verify(Node, frozen=True):
    """verify: parsing ends with the error of that number unless the condition holds."""

    condition: Condition
    error: Data


class RequireBytes(Node, frozen=True):
    """PacketTooShort unless this many bytes follow; they are not skipped."""

    count: int


class RequireElement(Node, frozen=True):
    """StackOutOfBounds if the stack is empty."""

    stack: Stack


ParserOperation = Statement | Extract | Advance | Verify | RequireBytes | RequireElement
