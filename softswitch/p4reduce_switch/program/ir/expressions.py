"""Expressions: integers and conditions.

Integers have unlimited precision, as on BMv2; every node has the interval of its values, and so width and
sign. Truncation and saturation are nodes (`Cut`, `Saturate`). Evaluation has no side effect, but raises an
ExecutionError where P4 leaves a result undefined; so operands of conditions and choices are evaluated only
where P4 evaluates them. Build nodes with the functions of `build.py`, which compute intervals and omit
operations without effect.

Nodes are compared by identity.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from p4reduce_switch.program.ir.externs import Calculation, Register
from p4reduce_switch.program.ir.intervals import Data, Op
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


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Data):
    """A literal."""

    value: int


@dataclass(frozen=True, slots=True, eq=False)
class FieldValue(Data):
    """The value of a field."""

    field: FieldRef


@dataclass(frozen=True, slots=True, eq=False)
class Validity(Data):
    """1 when the header is valid, else 0."""

    header: HeaderRef


@dataclass(frozen=True, slots=True, eq=False)
class Argument(Data):
    """The value of the enclosing action's parameter number `index`."""

    index: int


@dataclass(frozen=True, slots=True, eq=False)
class StackCount(Data):
    """The number of elements of a stack that were pushed or extracted."""

    stack: Stack


@dataclass(frozen=True, slots=True, eq=False)
class RegisterCell(Data):
    """The value of a register cell; an index out of range is an ExecutionError."""

    register: Register
    index: Data


@dataclass(frozen=True, slots=True, eq=False)
class Binary(Data):
    """`left op right`; a divisor of 0 is an ExecutionError, and shifting left too far gives 0."""

    op: Op
    left: Data
    right: Data


@dataclass(frozen=True, slots=True, eq=False)
class Complement(Data):
    """All bits inverted: -1 - operand."""

    operand: Data


@dataclass(frozen=True, slots=True, eq=False)
class Cut(Data):
    """`operand` modulo 2^bits, in two's complement when `to_signed`."""

    operand: Data
    bits: int
    to_signed: bool


@dataclass(frozen=True, slots=True, eq=False)
class Saturate(Data):
    """`operand` clamped to the range of `bits` bits."""

    operand: Data
    bits: int
    to_signed: bool


@dataclass(frozen=True, slots=True, eq=False)
class Choose(Data):
    """`yes` if the condition holds, else `no`."""

    condition: Condition
    yes: Data
    no: Data


@dataclass(frozen=True, slots=True, eq=False)
class Number(Data):
    """1 if the condition holds, else 0."""

    condition: Condition


@dataclass(frozen=True, slots=True, eq=False)
class Hash(Data):
    """`base + hash % modulus`; a modulus of 0 counts as 1, None leaves the hash as it is."""

    calculation: Calculation
    base: Data
    modulus: Data | None


@dataclass(frozen=True, slots=True, eq=False)
class Lookahead(Data):
    """lookahead: `bits` bits of the frame, `skip` bits after the parsed ones; a preceding RequireBytes checks them."""

    skip: int
    bits: int


@dataclass(frozen=True, slots=True, eq=False)
class Result(Data):
    """The result of the enclosing statement (`RegisterRead`, `MeterExecute`, `RandomNumber`)."""


# ---- conditions


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """True or false."""


@dataclass(frozen=True, slots=True, eq=False)
class Truth(Condition):
    """A literal."""

    value: bool


@dataclass(frozen=True, slots=True, eq=False)
class NonZero(Condition):
    """The integer is not 0."""

    operand: Data


@dataclass(frozen=True, slots=True, eq=False)
class Join(Condition):
    """`left and right`, `left or right`."""

    how: Junction
    left: Condition
    right: Condition


@dataclass(frozen=True, slots=True, eq=False)
class Not(Condition):
    """The condition does not hold."""

    operand: Condition


@dataclass(frozen=True, slots=True, eq=False)
class Compare(Condition):
    """A comparison of two integers."""

    how: Relation
    left: Data
    right: Data


@dataclass(frozen=True, slots=True, eq=False)
class SameTruth(Condition):
    """Both conditions hold, or neither."""

    left: Condition
    right: Condition


@dataclass(frozen=True, slots=True, eq=False)
class Valid(Condition):
    """The header is valid."""

    header: HeaderRef


@dataclass(frozen=True, slots=True, eq=False)
class ValidUnion(Condition):
    """One of the union's members is valid."""

    union: UnionRef


@dataclass(frozen=True, slots=True, eq=False)
class SameHeader(Condition):
    """Both headers are valid and all their fields equal."""

    left: HeaderRef
    right: HeaderRef


@dataclass(frozen=True, slots=True, eq=False)
class SameUnion(Condition):
    """The same member is valid in both, with equal fields."""

    left: UnionRef
    right: UnionRef


@dataclass(frozen=True, slots=True, eq=False)
class ChooseTruth(Condition):
    """`yes` if the condition holds, else `no`."""

    condition: Condition
    yes: Condition
    no: Condition
