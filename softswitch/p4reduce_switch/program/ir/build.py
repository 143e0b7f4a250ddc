"""Builders of expression nodes: compute intervals, fold constants, omit operations without effect."""

from __future__ import annotations

from p4reduce_switch.program.ir.expressions import (
    Binary,
    Choose,
    Complement,
    Condition,
    Constant,
    Cut,
    FieldValue,
    NonZero,
    Number,
    Result,
    Saturate,
    StackCount,
    Truth,
    Validity,
)
from p4reduce_switch.program.ir.intervals import BIT, UNKNOWN, Data, Interval, Op, combined, fold
from p4reduce_switch.program.ir.places import FieldRef, HeaderRef, Stack

_NEUTRAL_ZERO = (Op.ADD, Op.SUBTRACT, Op.OR, Op.XOR, Op.SHIFT_LEFT, Op.SHIFT_RIGHT)


def constant(number: int) -> Constant:
    """A literal."""
    return Constant(Interval(number, number), number)


def field_value(field: FieldRef) -> Data:
    """Return the expression that reads a field, with the interval of its values."""
    kind = field.type
    varbit_bits = 8 * max(0, field.header.type.varbit_bytes) if kind.varbit else 0
    return FieldValue(Interval.of(varbit_bits or kind.width, kind.signed), field)


def validity(header: HeaderRef) -> Data:
    """Return a header's validity as an integer."""
    return Validity(BIT, header)


def stack_count(stack: Stack) -> Data:
    """Return the number of elements pushed to or extracted into a stack."""
    return StackCount(Interval(0, stack.size), stack)


def result(interval: Interval = UNKNOWN) -> Data:
    """Return the result of the enclosing statement."""
    return Result(interval)


def binary(op: Op, a: Data, b: Data) -> Data:
    """`a op b`."""
    if isinstance(a, Constant) and isinstance(b, Constant):
        folded = fold(op, a.value, b.value)
        if folded is not None:
            return constant(folded)
    if op is Op.AND:
        for value, other in ((a, b), (b, a)):
            if isinstance(other, Constant) and _covers(other.value, value.interval):
                return value
    if isinstance(b, Constant) and b.value == 0 and op in _NEUTRAL_ZERO:
        return a
    return Binary(combined(op, a.interval, b.interval), op, a, b)


def _covers(mask: int, interval: Interval) -> bool:
    """Return whether `x & mask == x` for every x of the interval."""
    if interval.low is None or interval.high is None or interval.low < 0:
        return False
    reach = (1 << interval.high.bit_length()) - 1
    return mask & reach == reach


def complement(value: Data) -> Data:
    """`~value`."""
    return Complement(value.interval.complement(), value)


def cut(value: Data, width: int, signed: bool) -> Data:
    """Return `value` truncated to the width of a field."""
    target = Interval.of(width, signed)
    assert target.low is not None and target.high is not None
    if value.interval.within(target.low, target.high):
        return value
    if isinstance(value, Constant):
        return constant((value.value - target.low & (1 << width) - 1) + target.low)
    return Cut(target, value, width, signed)


def saturate(value: Data, width: int, signed: bool) -> Data:
    """Return `value` clamped to the range of `width` bits."""
    target = Interval.of(width, signed)
    assert target.low is not None and target.high is not None
    if value.interval.within(target.low, target.high):
        return value
    return Saturate(target, value, width, signed)


def choose(condition: Condition, yes: Data, no: Data) -> Data:
    """`yes` if the condition holds, else `no`."""
    return Choose(yes.interval.or_else(no.interval), condition, yes, no)


def number(condition: Condition) -> Data:
    """Return a condition as 0 or 1."""
    if isinstance(condition, Truth):
        return constant(int(condition.value))
    if isinstance(condition, NonZero) and condition.operand.interval.within(0, 1):
        return condition.operand
    return Number(BIT, condition)


def truth(value: Data) -> Condition:
    """Return an integer as a condition: it is not 0."""
    if isinstance(value, Number):
        return value.condition
    return NonZero(value)
