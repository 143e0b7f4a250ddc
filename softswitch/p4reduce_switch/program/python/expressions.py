"""Expressions and places of the IR as Python expressions.

In the generated code `f` is the packet: a list with an element for each slot. `a0`, `a1`, … are an action's
parameters; in a parser `d` is the frame, `o` the offset of the next byte, `e` the start of the stack element that an
extract fills. An expression deeper than Python takes continues in a function of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from p4reduce_switch.program.ir.data import Data
from p4reduce_switch.program.ir.expressions import (
    Argument,
    Binary,
    Choose,
    ChooseTruth,
    Compare,
    Complement,
    Condition,
    Constant,
    Cut,
    FieldValue,
    Hash,
    Join,
    Lookahead,
    NonZero,
    Not,
    Number,
    RegisterCell,
    Result,
    SameHeader,
    SameTruth,
    SameUnion,
    Saturate,
    StackCount,
    Truth,
    Valid,
    Validity,
    ValidUnion,
)
from p4reduce_switch.program.ir.externs import Calculation, Register
from p4reduce_switch.program.ir.intervals import WIDEST_SHIFT, Interval, Op
from p4reduce_switch.program.ir.places import End, Header, HeaderElement, HeaderRef, Stack, Union, UnionRef, union_of
from p4reduce_switch.program.python.source import Source

MAX_LEVELS = 24
"""Levels of an expression that are written in place; Python takes 200 parentheses."""
PYTHON = {Op.DIVIDE: "//", Op.MODULO: "%"}

Start = int | str
"""Where a header starts: a slot, or the name of a variable, or an expression."""


def literal(number: int) -> str:
    """A number."""
    return f"({hex(number)})" if number < 0 else hex(number) if number > 9 else str(number)


def slot(start: Start, offset: int = 0) -> str:
    """An element of the packet."""
    return f"f[{start + offset}]" if isinstance(start, int) else f"f[{start} + {offset}]"


def slots(start: Start, length: int) -> str:
    """A slice of the packet."""
    if isinstance(start, int):
        return f"f[{start}:{start + length}]"
    return f"f[{start}:{start} + {length}]"


class Names:
    """Names, in the generated module, of the objects that expressions use."""

    def __init__(self) -> None:
        self.registers: dict[Register, str] = {}
        self.calculations: dict[Calculation, str] = {}


class Expressions:
    """Writes expressions; `result` is the code that a Result stands for."""

    def __init__(self, source: Source, names: Names, parameters: int = 0) -> None:
        self.source = source
        self.names = names
        self.scope = ", ".join(["f", *(f"a{i}" for i in range(parameters))])
        self.result = ""
        self._level = 0

    # ---- integers

    def data(self, node: Data) -> str:
        """An integer."""
        self._level += 1
        try:
            return self._apart(node) if self._level > MAX_LEVELS else self._data(node)
        finally:
            self._level -= 1

    def _apart(self, node: Data | Condition) -> str:
        """A call of a function that returns the value."""
        name = self.source.fresh("part")

        def write() -> None:
            with self.source.block(f"def {name}({self.scope}):"):
                self.source.add(f"return {self.data(node) if isinstance(node, Data) else self.test(node)}")

        self.source.later(write)
        return f"{name}({self.scope})"

    def _data(self, node: Data) -> str:
        match node:
            case Constant():
                return literal(node.value)
            case FieldValue():
                return slot(self.start(node.field.header), node.field.offset)
            case Validity():
                return self.valid(node.header)
            case Argument():
                return f"a{node.index}"
            case Binary():
                return self._binary(node.op, node.left, node.right)
            case Cut():
                return self._cut(node)
            case Saturate():
                return self._saturate(node)
            case Complement():
                return f"(~{self.data(node.operand)})"
            case Choose():
                yes, no = self.data(node.yes), self.data(node.no)
                return f"({yes} if {self.test(node.condition)} else {no})"
            case Number():
                return f"(1 if {self.test(node.condition)} else 0)"
            case StackCount():
                return slot(node.stack.next)
            case RegisterCell():
                index = self._index(node.index, node.register.size)
                return f"{self.names.registers[node.register]}[{index}]"
            case Hash():
                return self._hash(node)
            case Lookahead():
                return self._lookahead(node)
            case Result():
                return self.result
        raise AssertionError(f"unknown expression {type(node).__name__}")

    def _index(self, index: Data, size: int) -> str:
        code = self.data(index)
        return code if index.interval.within(0, size - 1) else f"checked_index({code}, {size})"

    def _binary(self, op: Op, left: Data, right: Data) -> str:
        a, b = self.data(left), self.data(right)
        if op in (Op.DIVIDE, Op.MODULO):
            low = right.interval.low
            return f"({a} {PYTHON[op]} {b if low is not None and low > 0 else f'nonzero({b})'})"
        if op is Op.SHIFT_LEFT and not right.interval.within(0, WIDEST_SHIFT):
            by = self.source.fresh("s")
            least = "0 <= " if right.signed else ""
            return f"({a} << {by} if {least}({by} := {b}) <= {WIDEST_SHIFT} else 0)"
        if op is Op.SHIFT_RIGHT and right.signed:
            by = self.source.fresh("s")
            return f"({a} >> {by} if 0 <= ({by} := {b}) else 0)"
        return f"({a} {op.value} {b})"

    def _cut(self, node: Cut) -> str:
        code, mask = self.data(node.operand), literal((1 << node.bits) - 1)
        if not node.to_signed:
            return f"({code} & {mask})"
        half = literal(1 << (node.bits - 1))
        return f"(({code} + {half} & {mask}) - {half})"

    def _saturate(self, node: Saturate) -> str:
        code, whole = self.data(node.operand), Interval.of(node.bits, node.to_signed)
        assert whole.low is not None and whole.high is not None
        low, high, value = literal(whole.low), literal(whole.high), self.source.fresh("t")
        least = node.operand.interval.low
        if least is not None and least >= whole.low:
            return f"({value} if ({value} := {code}) <= {high} else {high})"
        return f"({low} if ({value} := {code}) < {low} else {value} if {value} <= {high} else {high})"

    def _hash(self, node: Hash) -> str:
        code = f"{self.names.calculations[node.calculation]}(f)"
        if isinstance(node.modulus, Constant):
            code = f"{code} % {literal(node.modulus.value or 1)}"
        elif node.modulus is not None:
            code = f"{code} % ({self.data(node.modulus)} or 1)"
        return f"({code} + {self.data(node.base)})"

    def _lookahead(self, node: Lookahead) -> str:
        first, last = node.skip // 8, (node.skip + node.bits + 7) // 8
        code = f"d[o + {first}]" if last - first == 1 else f"from_bytes(d[o + {first}:o + {last}], 'big')"
        shift = last * 8 - node.skip - node.bits
        code = f"({code} >> {shift})" if shift else code
        return code if (last - first) * 8 - shift <= node.bits else f"({code} & {literal((1 << node.bits) - 1)})"

    # ---- conditions

    def test(self, node: Condition) -> str:
        """A condition."""
        self._level += 1
        try:
            return self._apart(node) if self._level > MAX_LEVELS else self._test(node)
        finally:
            self._level -= 1

    def _test(self, node: Condition) -> str:
        match node:
            case Truth():
                return "1" if node.value else "0"
            case NonZero():
                code = self.data(node.operand)
                return code if node.operand.interval.within(0, 1) else f"({code} != 0)"
            case Join():
                return f"({self.test(node.left)} {node.how.value} {self.test(node.right)})"
            case Not():
                return f"(not {self.test(node.operand)})"
            case Compare():
                return f"({self.data(node.left)} {node.how.value} {self.data(node.right)})"
            case SameTruth():
                return f"(bool({self.test(node.left)}) == bool({self.test(node.right)}))"
            case Valid():
                return self.valid(node.header)
            case ValidUnion():
                return self._valid_union(node.union)
            case SameHeader():
                return self._same(self.start(node.left), self.start(node.right), (Span.of(0, node.left),))
            case SameUnion():
                left, right = self.union_start(node.left), self.union_start(node.right)
                return self._same(left, right, _spans(node.left))
            case ChooseTruth():
                yes, no = self.test(node.yes), self.test(node.no)
                return f"({yes} if {self.test(node.condition)} else {no})"
        raise AssertionError(f"unknown condition {type(node).__name__}")

    def _valid_union(self, ref: UnionRef) -> str:
        start, spans = self.union_start(ref), _spans(ref)
        if isinstance(start, int):
            return "(" + " or ".join(slot(start, span.valid) for span in spans) + ")"
        return f"one_valid(f, {start}, {self.source.bind('members', spans)})"

    def _same(self, a: Start, b: Start, spans: tuple[Span, ...]) -> str:
        """One of the headers in these spans is valid at `a` and equal at `b`."""
        if not isinstance(a, int) or not isinstance(b, int):
            return f"one_same(f, {a}, {b}, {self.source.bind('members', spans)})"
        parts = [
            f"({slot(a, span.valid)} and {slots(a + span.start, span.length)} == {slots(b + span.start, span.length)})"
            for span in spans
        ]
        return parts[0] if len(parts) == 1 else "(" + " or ".join(parts) + ")"

    # ---- places

    def start(self, ref: HeaderRef) -> Start:
        """Where a header starts."""
        if isinstance(ref, Header):
            return ref.base
        if isinstance(ref, HeaderElement):
            return self._element(ref.stack, ref.index)
        offset = _spans(ref.union)[ref.index].start
        return f"({self._element(ref.union.stack, ref.union.index)} + {offset})"

    def union_start(self, ref: UnionRef) -> Start:
        """Where a union starts."""
        return ref.base if isinstance(ref, Union) else self._element(ref.stack, ref.index)

    def _element(self, stack: Stack, index: Data | End) -> str:
        if index is End.NEXT:
            return "e"
        if isinstance(index, End):
            return f"({stack.base - stack.stride} + {stack.stride} * f[{stack.next}])"
        return f"({stack.base} + {stack.stride} * {self._index(index, stack.size)})"

    def valid(self, ref: HeaderRef) -> str:
        """The validity of a header."""
        return slot(self.start(ref), ref.type.valid_offset)


@dataclass(frozen=True, slots=True)
class Span:
    """A member of a union: its slots are start..start + length, seen from the union, and its validity is at `valid`."""

    start: int
    length: int
    valid: int

    @classmethod
    def of(cls, start: int, header: HeaderRef) -> Span:
        """The span of a header that starts there."""
        return cls(start, header.type.slots, start + header.type.valid_offset)


def _spans(ref: UnionRef) -> tuple[Span, ...]:
    union = union_of(ref)
    return tuple(Span.of(member.base - union.base, member) for member in union.members)


def rivals(ref: HeaderRef, start: Start) -> list[str]:
    """Validities of the other members of a header's union, for a header that starts at `start`."""
    if isinstance(ref, Header):
        return [slot(rival) for rival in ref.rivals]
    if isinstance(ref, HeaderElement):
        return []
    spans = _spans(ref.union)
    own = spans[ref.index].start
    others = [span.valid - own for index, span in enumerate(spans) if index != ref.index]
    return [slot(start, other) for other in others]
