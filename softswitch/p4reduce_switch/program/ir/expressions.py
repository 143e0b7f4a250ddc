"""Expressions: integers and conditions.

Integers have unlimited precision, as on BMv2; every node has the interval of its values, and so width and
sign. Truncation and saturation are nodes (`Cut`, `Saturate`). Evaluation has no side effect, but raises an
ExecutionError where P4 leaves a result undefined; so operands of conditions and choices are evaluated only
where P4 evaluates them. Build nodes with the functions of `build.py`, which compute intervals and omit
operations without effect.
"""

from __future__ import annotations

from enum import Enum

from p4reduce_switch.program.ir.externs import Calculation, Register
from p4reduce_switch.program.ir.intervals import Data, Node, Op
from p4reduce_switch.program.ir.places import FieldRef, HeaderRef, Stack, UnionRef


class Relation(Enum):
    """A comparison of two integers."""

    EQUAL = "=="
    UNEQUAL = "!="
    LESS = "<"
    GREATER = ">"
    AT_MOST = "<="
    AT_LEAST = ">="


class Junction(Enum):
    """A logical operator; the right operand is evaluated only if the left one does not decide the result."""

    AND = "and"
    OR = "or"


# ---- integers


class Constant(Data, frozen=True):
    """A literal."""

    value: int


class FieldValue(Data, frozen=True):
    """A field as an operand: the value that it has when the expression is computed."""

    field: FieldRef


class Validity(Data, frozen=True):
    """1 when the header is valid, else 0."""

    header: HeaderRef


class Argument(Data, frozen=True):
    """The value of the enclosing action's parameter number `index`."""

    index: int


class StackCount(Data, frozen=True):
    """The number of elements of a stack that were pushed or extracted."""

    stack: Stack


class RegisterCell(Data, frozen=True):
    """The value of a register cell; an index out of range is an ExecutionError."""

    register: Register
    index: Data


class Binary(Data, frozen=True):
    """`left op right`; a divisor of 0 is an ExecutionError, and shifting left too far gives 0."""

    op: Op
    left: Data
    right: Data


class Complement(Data, frozen=True):
    """All bits inverted: -1 - operand."""

    operand: Data


class Cut(Data, frozen=True):
    """`operand` modulo 2^bits, in two's complement when `to_signed`."""

    operand: Data
    bits: int
    to_signed: bool


class Saturate(Data, frozen=True):
    """`operand` clamped to the range of `bits` bits."""

    operand: Data
    bits: int
    to_signed: bool


class Choose(Data, frozen=True):
    """`yes` if the condition holds, else `no`."""

    condition: Condition
    yes: Data
    no: Data


class Number(Data, frozen=True):
    """1 if the condition holds, else 0."""

    condition: Condition


class Hash(Data, frozen=True):
    """`base + hash % modulus`; a modulus of 0 counts as 1, None leaves the hash as it is."""

    calculation: Calculation
    base: Data
    modulus: Data | None


class Lookahead(Data, frozen=True):
    """lookahead: `bits` bits of the frame, `skip` bits after the parsed ones; a preceding RequireBytes checks them."""

    skip: int
    bits: int


class Result(Data, frozen=True):
    """The result of the enclosing statement (`RegisterRead`, `MeterExecute`, `RandomNumber`)."""


# ---- conditions


class Condition(Node, frozen=True):
    """True or false."""


class Truth(Condition, frozen=True):
    """A literal."""

    value: bool


class NonZero(Condition, frozen=True):
    """The integer is not 0."""

    operand: Data


class Join(Condition, frozen=True):
    """`left and right`, `left or right`."""

    how: Junction
    left: Condition
    right: Condition


class Not(Condition, frozen=True):
    """The condition does not hold."""

    operand: Condition


class Compare(Condition, frozen=True):
    """A comparison of two integers."""

    how: Relation
    left: Data
    right: Data


class SameTruth(Condition, frozen=True):
    """Both conditions hold, or neither."""

    left: Condition
    right: Condition


class Valid(Condition, frozen=True):
    """The header is valid."""

    header: HeaderRef


class ValidUnion(Condition, frozen=True):
    """One of the union's members is valid."""

    union: UnionRef


class SameHeader(Condition, frozen=True):
    """Both headers are valid and all their fields equal."""

    left: HeaderRef
    right: HeaderRef


class SameUnion(Condition, frozen=True):
    """The same member is valid in both, with equal fields."""

    left: UnionRef
    right: UnionRef


class ChooseTruth(Condition, frozen=True):
    """`yes` if the condition holds, else `no`."""

    condition: Condition
    yes: Condition
    no: Condition
