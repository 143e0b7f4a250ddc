"""Loads expressions of the JSON into expressions of the IR."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

from p4reduce_switch.program.errors import UnsupportedConstructError
from p4reduce_switch.program.ir import build
from p4reduce_switch.program.ir import expressions as ir
from p4reduce_switch.program.ir.externs import Register
from p4reduce_switch.program.ir.intervals import Data, Interval, Op
from p4reduce_switch.program.ir.places import (
    End,
    FieldRef,
    Header,
    HeaderElement,
    HeaderRef,
    HeaderStack,
    Member,
    Stack,
    Union,
    UnionElement,
    UnionRef,
    UnionStack,
    member,
    union_of,
)
from p4reduce_switch.program.load.layout import VALID, Layout, field_of, find
from p4reduce_switch.program.load.reader import MAX_BITS, MAX_NESTING, Place, shorten

ARITHMETIC = {op.value: op for op in Op}
COMPARISON = {relation.value: relation for relation in ir.Relation}
JUNCTION = {junction.value: junction for junction in ir.Junction}
BINARY = {*ARITHMETIC, *COMPARISON, *JUNCTION, "two_comp_mod", "sat_cast", "usat_cast"}

Expression = Data | ir.Condition | HeaderRef | UnionRef | Stack


CALLS_OF_A_LEVEL = 3

T = TypeVar("T")
Task = Generator["Task[Any]", Any, T]
"""A recursive function without Python's stack: it yields its recursive calls to `run`."""


def run(task: Task[T]) -> T:
    """Run the generator, and return its result."""
    stack: list[Task[Any]] = [task]
    value: Any = None
    while stack:
        try:
            inner = stack[-1].send(value)
        except StopIteration as stop:
            stack.pop()
            value = stop.value
        else:
            if len(stack) >= CALLS_OF_A_LEVEL * MAX_NESTING:
                raise UnsupportedConstructError(f"expressions nested deeper than {MAX_NESTING} levels")
            stack.append(inner)
            value = None
    result: T = value
    return result


class Expressions:
    """Loads expressions; `widths` are those of the enclosing action's parameters.

    `require` is called with each stack whose last element an expression uses; None where `last` is not allowed.
    """

    def __init__(self, layout: Layout, registers: Mapping[str, Register], widths: tuple[int, ...] = ()) -> None:
        self.layout = layout
        self.registers = registers
        self.widths = widths
        self.require: Callable[[Stack], None] | None = None

    # ---- entry points

    def data(self, place: Place) -> Data:
        """Return an integer expression; a condition is 0 or 1."""
        return self.as_data(run(self._any(place)), place)

    def condition(self, place: Place) -> ir.Condition:
        """Return a condition; an integer is true if it is not 0."""
        return self.as_condition(run(self._any(place)), place)

    def header(self, place: Place) -> HeaderRef:
        """Return a reference to the header that `place` names."""
        return self.as_header(run(self._any(place)), place)

    def union(self, place: Place) -> UnionRef:
        """Return a header union."""
        return self.as_union(run(self._any(place)), place)

    def stack(self, place: Place) -> Stack:
        """Return a header stack, or a stack of unions."""
        return self.as_stack(run(self._any(place)), place)

    def field(self, place: Place) -> FieldRef | None:
        """Return the field that an expression names, as an assignment target; None if it names none."""
        place = unwrapped(place)
        kind = place["type"].text()
        if kind == "field":
            return self.layout.field(place["value"])
        if kind == "expression" and place["value"]["op"].text() == "access_field":
            header = self.header(place["value"]["left"])
            return FieldRef(header, self._offset(header, place["value"]["right"]))
        return None

    # ---- conversions

    def as_data(self, found: Expression, place: Place) -> Data:
        if isinstance(found, Data):
            return found
        if isinstance(found, ir.Condition):
            return build.number(found)
        raise UnsupportedConstructError(f"expression of type {_word(place)}")

    def as_condition(self, found: Expression, place: Place) -> ir.Condition:
        return found if isinstance(found, ir.Condition) else build.truth(self.as_data(found, place))

    def as_header(self, found: Expression, place: Place) -> HeaderRef:
        if isinstance(found, (Header, HeaderElement, Member)):
            return found
        raise UnsupportedConstructError(f"header expression of type {_word(place)}")

    def as_union(self, found: Expression, place: Place) -> UnionRef:
        if isinstance(found, (Union, UnionElement)):
            return found
        raise UnsupportedConstructError(f"union expression of type {_word(place)}")

    def as_stack(self, found: Expression, place: Place) -> Stack:
        if isinstance(found, (HeaderStack, UnionStack)):
            return found
        place.fail("expected a header stack")

    # ---- one expression

    def _any(self, place: Place) -> Task[Expression]:
        place = unwrapped(place)
        kind, value = place["type"].text(), place["value"]
        match kind:
            case "expression":
                result: Expression = yield self._operation(value)
                return result
            case "hexstr":
                return build.constant(value.hexadecimal())
            case "bool":
                return ir.Truth(value.boolean())
            case "field":
                owner, name = value.pair()
                if owner.is_object and name.text() == VALID:  # p4c's JSON for stack[index].isValid(); BMv2 rejects it
                    element = yield self._element(owner, owner["op"].text() == "dereference_union_stack")
                    return build.validity(self.as_header(element, owner))
                return self._field(value)
            case "local" | "runtime_data":
                index = value.integer(0, len(self.widths) - 1)
                return ir.Argument(Interval.unsigned(self.widths[index]), index)
            case "register":
                name, index_place = value.pair()
                register = find(self.registers, name, "register")
                cell = self.as_data((yield self._any(index_place)), index_place)
                return ir.RegisterCell(Interval.unsigned(register.bitwidth), register, cell)
            case "header":
                return self.layout.header(value)
            case "header_union":
                return find(self.layout.unions, value, "header union")
            case "header_stack" | "header_union_stack":
                return self.layout.stack(value)
            case "stack_field":
                name, field = value.pair()
                stack = self.layout.header_stack(name)
                element = HeaderElement(stack, self._last(stack))
                if field.text() == "last" and not any(known.name == "last" for known in stack.type.fields):
                    return element  # p4c's JSON for a copy of the whole element; BMv2 crashes on it
                return build.field_value(FieldRef(element, field_of(stack.type, field)))
            case "union_stack_field":
                name, which, field = value.several(3)
                unions = self.layout.union_stack(name)
                chosen = member(UnionElement(unions, self._last(unions)), member_index(unions, which))
                return build.field_value(FieldRef(chosen, field_of(chosen.type, field)))
        raise UnsupportedConstructError(f"expression of type {place['type'].name()}")

    def _field(self, place: Place) -> Data:
        header_place, name = place.pair()
        header = self.layout.header(header_place)
        if name.text() == VALID:
            return build.validity(header)
        return build.field_value(FieldRef(header, field_of(header.type, name)))

    def _last(self, stack: Stack) -> End:
        if self.require is None:
            raise UnsupportedConstructError(f"{shorten(stack.name)}.last outside a parser")
        self.require(stack)
        return End.LAST

    def _offset(self, header: HeaderRef, place: Place) -> int:
        return place.integer(0, len(header.type.fields) - 1)

    def _operation(self, place: Place) -> Task[Expression]:
        op, right = place["op"].text(), place["right"]
        found: Expression
        match op:
            case "access_field":
                header = self.as_header((yield self._any(place["left"])), place["left"])
                if right.value == len(header.type.fields):
                    return build.validity(header)
                return build.field_value(FieldRef(header, self._offset(header, right)))
            case "access_union_header":
                union = self.as_union((yield self._any(place["left"])), place["left"])
                return member(union, right.integer(0, len(union_of(union).members) - 1))
            case "dereference_header_stack" | "dereference_stack" | "dereference_union_stack":
                found = yield self._element(place, op == "dereference_union_stack")
                return found
            case "?":
                found = yield self._choice(place)
                return found
            case "last_stack_index":
                return build.binary(Op.SUBTRACT, build.stack_count(self.stack(right)), build.constant(1))
            case "size_stack":
                return build.stack_count(self.stack(right))
            case "not":
                return ir.Not(self.as_condition((yield self._any(right)), right))
            case "d2b":
                return build.truth(self.as_data((yield self._any(right)), right))
            case "b2d":
                return build.number(self.as_condition((yield self._any(right)), right))
            case "valid":
                return ir.Valid(self.as_header((yield self._any(right)), right))
            case "valid_union":
                return ir.ValidUnion(self.as_union((yield self._any(right)), right))
            case "~":
                return build.complement(self.as_data((yield self._any(right)), right))
        found = yield self._binary(place, op)
        return found

    def _binary(self, place: Place, op: str) -> Task[Expression]:
        left_place, right_place = place.get("left"), place["right"]
        if op not in BINARY:
            raise UnsupportedConstructError(f"operator {place['op'].name()}")
        if left_place is None:
            if op not in ("+", "-"):
                place.fail(f"operator {op} without a left operand")
            zero, sole = build.constant(0), self.as_data((yield self._any(right_place)), right_place)
            return build.binary(ARITHMETIC[op], zero, sole)
        left: Expression = yield self._any(left_place)
        right: Expression = yield self._any(right_place)
        if op in ("==", "!="):
            equal = self._equality(left, right, left_place, right_place, COMPARISON[op])
            return equal if op == "==" or isinstance(equal, ir.Compare) else ir.Not(equal)
        if op in JUNCTION:
            return ir.Join(JUNCTION[op], self.as_condition(left, left_place), self.as_condition(right, right_place))
        a, b = self.as_data(left, left_place), self.as_data(right, right_place)
        if op in COMPARISON:
            return ir.Compare(COMPARISON[op], a, b)
        if op in ARITHMETIC:
            return self._arithmetic(ARITHMETIC[op], a, b)
        return self._cast(op, a, b, right_place)

    def _arithmetic(self, op: Op, a: Data, b: Data) -> Data:
        if op in (Op.DIVIDE, Op.MODULO) and a.signed:
            raise UnsupportedConstructError(f"{op.value} of a value that may be negative")
        return build.binary(op, a, b)

    def _cast(self, op: str, value: Data, bits: Data, place: Place) -> Data:
        width = bits.interval.constant
        if width is None:
            raise UnsupportedConstructError(f"{op} to a width that is not constant")
        if not 1 <= width <= MAX_BITS:
            place.fail(f"the width is not in 1..{MAX_BITS}")
        if op == "two_comp_mod":
            return build.cut(value, width, True)
        return build.saturate(value, width, op == "sat_cast")

    def _choice(self, place: Place) -> Task[Expression]:
        left_place, right_place, condition_place = place["left"], place["right"], place["cond"]
        left: Expression = yield self._any(left_place)
        right: Expression = yield self._any(right_place)
        condition = self.as_condition((yield self._any(condition_place)), condition_place)
        if isinstance(left, ir.Condition):
            return ir.ChooseTruth(condition, left, self.as_condition(right, right_place))
        return build.choose(condition, self.as_data(left, left_place), self.as_data(right, right_place))

    def _equality(
        self, left: Expression, right: Expression, left_place: Place, right_place: Place, how: ir.Relation
    ) -> ir.Condition:
        """Return the equality of both; of integers, the comparison."""
        if isinstance(left, Data):
            return ir.Compare(how, left, self.as_data(right, right_place))
        if isinstance(left, ir.Condition):
            return ir.SameTruth(left, self.as_condition(right, right_place))
        if isinstance(left, (HeaderStack, UnionStack)):
            raise UnsupportedConstructError("comparison of stacks")
        if isinstance(left, (Union, UnionElement)):
            other = self.as_union(right, right_place)
            if not union_of(left).same_as(union_of(other)):
                right_place.fail("unions of different types are compared")
            return ir.SameUnion(left, other)
        header = self.as_header(right, right_place)
        if not left.type.same_as(header.type):
            right_place.fail("headers of different types are compared")
        return ir.SameHeader(left, header)

    def _element(self, place: Place, union: bool) -> Task[Expression]:
        name = place["left"]["value"]
        stack = self.layout.union_stack(name) if union else self.layout.header_stack(name)
        index = self.as_data((yield self._any(place["right"])), place["right"])
        constant = index.interval.constant
        if constant is not None and 0 <= constant < stack.size:
            return stack.elements[constant]
        return UnionElement(stack, index) if isinstance(stack, UnionStack) else HeaderElement(stack, index)


def member_index(stack: UnionStack, place: Place) -> int:
    """Return the index of the member of a stack's unions that a string names."""
    names = stack.elements[0].member_names
    name = place.text()
    if name not in names:
        place.fail(f"the unions of {place.name()} have no such member")
    return names.index(name)


def unwrapped(place: Place) -> Place:
    """Return an expression without the wrappers that p4c adds."""
    while place["type"].text() == "expression" and not place["value"].has("op"):
        place = place["value"]
    return place


def _word(place: Place) -> str:
    place = unwrapped(place)
    kind = place["type"]
    return kind.name() if kind.text() != "expression" else place["value"]["op"].name()
