"""Expressions of the IR as LLVM values.

`low(node, size)` is a value modulo 2^size, computed with that many bits. `full(node)` is the exact value, extended by
its sign or zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from p4reduce_switch.program.errors import UnsupportedConstructError
from p4reduce_switch.program.ir import expressions as ir
from p4reduce_switch.program.ir.externs import Calculation, Register
from p4reduce_switch.program.ir.features import walk
from p4reduce_switch.program.ir.intervals import WIDEST_SHIFT, Data, Op
from p4reduce_switch.program.ir.places import HeaderElement, UnionElement, UnionRef
from p4reduce_switch.program.llvm.emitter import I1, I64, Emitter, Value
from p4reduce_switch.program.llvm.host_abi import Failure
from p4reduce_switch.program.llvm.lanes import Lanes
from p4reduce_switch.program.llvm.numbers import NATIVE, Number, Numbers, size_for
from p4reduce_switch.program.llvm.packet_state import Cell, PacketState
from p4reduce_switch.program.llvm.references import References

RING = (Op.ADD, Op.SUBTRACT, Op.MULTIPLY, Op.AND, Op.OR, Op.XOR)
"""Operations whose low bits depend only on the low bits of their operands."""


class ExpressionContext(Protocol):
    """The parts of `CodegenContext` that expressions use."""

    def register_cell(self, register: Register, index: Value) -> Cell:
        """Return a cell; the index is in range."""

    def calculation(self, calculation: Calculation) -> Value:
        """Emit a calculation; return its result in 64 bits."""

    def fail(self, failure: Failure, value: Number, signed: bool, limit: int) -> None:
        """Emit the failure of the frame."""


@dataclass
class Scope:
    """The scope of the enclosing action or parser state."""

    arguments: list[Cell]
    """An action's parameters."""
    result: Cell | Value | None = None
    """The value of a Result: a cell, or 64 bits."""
    frame: Callable[[], Value] | None = None
    """The function that gives, in a parser, a pointer to the next byte to parse."""


class Expressions:
    """Emits expressions."""

    def __init__(self, emitter: Emitter, numbers: Numbers, packet: PacketState, context: ExpressionContext) -> None:
        self.e = emitter
        self.n = numbers
        self.packet = packet
        self.context = context
        self.scope = Scope([])
        self.references = References(emitter, packet, self.index)
        self.lanes = Lanes(emitter, lambda node: packet.bytes_of(self.references.field(node.field)))

    # ---- integers

    def exact(self, node: Data) -> tuple[Number, bool]:
        """Return (value, whether it is signed) in the size of its bit width."""
        return self.low(node, size_for(node.bits)), node.signed

    def at_most_64_bits(self, node: Data) -> Value:
        """Return a value of at most 64 bits; UnsupportedConstructError when it may be wider."""
        if node.bits > 64:
            raise UnsupportedConstructError("a length or number of more than 64 bits")
        return self.low(node, 64)

    def low(self, node: Data, size: int) -> Number:
        """Return the value modulo 2^size."""
        self.e.count()
        if isinstance(node, ir.Constant):
            return self.n.constant(node.value, size)
        if isinstance(node, ir.Cut):
            return self._cut(node, size)
        if self._low_bits_suffice(node):
            own = self._size_of(node)
            if own is not None and own < size:
                return self.n.resize(self.low(node, own), size, node.signed)
            if size > NATIVE:
                return list(self.stream(node, size // 64))
            return self._low(node, size)
        value = self._exact(node, size_for(node.bits))
        return self.n.resize(value, size, node.signed)

    def _size_of(self, node: Data) -> int | None:
        try:
            return size_for(node.bits)
        except UnsupportedConstructError:
            return None

    def _low_bits_suffice(self, node: Data) -> bool:
        """Return whether the low bits can be computed without the others."""
        return isinstance(node, (ir.Complement, ir.Choose)) or (
            isinstance(node, ir.Binary) and (node.op in RING or node.op is Op.SHIFT_LEFT)
        )

    def _low(self, node: Data, size: int) -> Number:
        """Return a node that can be computed in any size, modulo 2^size."""
        match node:
            case ir.Complement():
                return self.n.not_(self.low(node.operand, size))
            case ir.Choose():
                return self._choose(node, size)
            case ir.Binary(op=Op.SHIFT_LEFT):
                return self._shift_left(node, size)
            case ir.Binary():
                a, b = self.low(node.left, size), self.low(node.right, size)
                return self._ring(node.op, a, b)
        raise AssertionError(f"unknown expression {type(node).__name__}")

    def _ring(self, op: Op, a: Number, b: Number) -> Number:
        match op:
            case Op.ADD:
                return self.n.add(a, b)
            case Op.SUBTRACT:
                return self.n.subtract(a, b)
            case Op.MULTIPLY:
                return self.n.multiply(a, b)
            case Op.AND:
                return self.n.and_(a, b)
            case Op.OR:
                return self.n.or_(a, b)
        return self.n.xor(a, b)

    def stream(self, node: Data, count: int) -> Iterator[Value]:
        """Yield the lowest limbs of a wide value, each emitted when it is used, to keep few values live."""
        match node:
            case ir.FieldValue() if self._is_wide(node, count):
                cell = self.references.field(node.field)
                return self.n.load_limbs(self.packet.bytes_of(cell), cell.kind.bytes_, cell.kind.signed)
            case ir.Binary() if node.op in RING and node.op is not Op.MULTIPLY and self._own_size(node, count):
                return self._ring_stream(node.op, self.stream(node.left, count), self.stream(node.right, count))
            case ir.Complement() if self._own_size(node, count):
                return (self.e.b.not_(limb) for limb in self.stream(node.operand, count))
            case ir.Choose() | ir.Binary() | ir.Complement() if self._low_bits_suffice(node) and self._own_size(
                node, count
            ):
                return iter(self.n.limbs(self._low(node, 64 * count)))
        return iter(self.n.limbs(self.low(node, 64 * count)))

    def _is_wide(self, node: ir.FieldValue, count: int) -> bool:
        """Return whether a field is stored as the bytes of that many limbs."""
        return not node.field.type.varbit and node.field.type.width > NATIVE and self._size_of(node) == 64 * count

    def _own_size(self, node: Data, count: int) -> bool:
        """Return whether the node has at least that many limbs."""
        own = self._size_of(node)
        return own is None or own >= 64 * count

    def _ring_stream(self, op: Op, a: Iterator[Value], b: Iterator[Value]) -> Iterator[Value]:
        if op is Op.ADD:
            return self.n.add_limbs(a, b)
        if op is Op.SUBTRACT:
            return self.n.subtract_limbs(a, b)
        return (self._ring(op, x, y) for x, y in zip(a, b, strict=True))

    def _cut(self, node: ir.Cut, size: int) -> Number:
        own = size_for(node.bits)
        value = self.low(node.operand, min(own, size))
        if own > size:  # the higher bits are not used
            return value
        return self.n.resize(self.n.truncate(value, node.bits, node.to_signed), size, node.to_signed)

    def _choose(self, node: ir.Choose, size: int) -> Number:
        condition = self.test(node.condition)
        return self._select_lazily(condition, lambda: self.low(node.yes, size), lambda: self.low(node.no, size), size)

    def _select_lazily(
        self, condition: Value, yes: Callable[[], Number], no: Callable[[], Number], size: int
    ) -> Number:
        """Return one of two numbers; only that one is computed at run time."""
        limbs = [self.e.local(I64) for _ in range(size // 64)]

        def branch(compute: Callable[[], Number]) -> Callable[[], None]:
            def write() -> None:
                for limb, where in zip(self.n.limbs(compute()), limbs, strict=True):
                    self.e.store(limb, where)

            return write

        self.e.if_else(condition, branch(yes), branch(no))
        return self.n.from_limbs([self.e.load(I64, where) for where in limbs])

    def _shift_left(self, node: ir.Binary, size: int) -> Number:
        by = node.right.interval.constant
        if by is not None:
            value = self.low(node.left, size)
            return self.n.shift_left_by(value, by) if 0 <= by <= WIDEST_SHIFT else self.n.constant(0, size)
        amount, _ = self.exact(node.right)
        if node.right.interval.within(0, WIDEST_SHIFT) or not _may_fail(node.left):
            return self._left(self.low(node.left, size), amount, size)
        _, inside = self._in_range(amount, WIDEST_SHIFT + 1)
        return self._compute_if(inside, lambda: self._left(self.low(node.left, size), amount, size), size)

    def _left(self, value: Number, amount: Number, size: int) -> Number:
        low, fits = self._in_range(amount, min(size, WIDEST_SHIFT + 1))
        return self.n.select(fits, self.n.shift_left(value, low), self.n.constant(0, size))

    def _compute_if(self, condition: Value, compute: Callable[[], Number], size: int) -> Number:
        """Compute a value only if the condition holds, else 0, so that it cannot fail otherwise."""
        zero = self.n.constant(0, size)
        return self._select_lazily(condition, compute, lambda: zero, size)

    def _in_range(self, value: Number, count: int) -> tuple[Value, Value]:
        """Return (`value` in 64 bits if it is in 0..count - 1, else 0; whether it is); negative numbers are not."""
        inside = self.n.less(value, self.n.constant(count, self.n.size(value)), False)
        return self.e.b.select(inside, self.n.limbs(value)[0], self.e.i64(0)), inside

    def _shift_right(self, node: ir.Binary, size: int) -> Number:
        """Shift; by more than the width leaves the sign, by a negative number gives 0."""
        signed = node.left.signed
        by = node.right.interval.constant
        if by is not None:
            value = self.low(node.left, size)
            return self.n.shift_right_by(value, by, signed) if by >= 0 else self.n.constant(0, size)
        amount, amount_signed = self.exact(node.right)

        def shifted() -> Number:
            value = self.low(node.left, size)
            low, fits = self._in_range(amount, size)
            return self.n.select(
                fits, self.n.shift_right(value, low, signed), self.n.shift_right_by(value, size, signed)
            )

        if not amount_signed:
            return shifted()
        positive = self.e.b.not_(self.n.less(amount, self.n.constant(0, self.n.size(amount)), True))
        return self._compute_if(positive, shifted, size)

    def _divide(self, node: ir.Binary, size: int) -> Number:
        a, b = self.low(node.left, size), self.low(node.right, size)
        low = node.right.interval.low
        if low is None or low <= 0:
            signed = node.right.signed
            zero = self.n.constant(0, size)
            wrong = self.n.is_zero(b)
            if signed:
                wrong = self.e.b.or_(wrong, self.n.less(b, zero, True))
            with self.e.if_then(wrong):
                self.context.fail(Failure.DIVISION, b, signed, 0)
        quotient, rest = self.n.divide(a, b)
        return quotient if node.op is Op.DIVIDE else rest

    def _exact(self, node: Data, size: int) -> Number:
        """Compute a node exactly, in the size of its bit width."""
        match node:
            case ir.FieldValue() if node.field.type.varbit:
                return self._varbit(node, size)
            case ir.FieldValue():
                return self._loaded(self.references.field(node.field), size)
            case ir.Validity():
                return self.packet.load(self.references.valid(node.header))
            case ir.Argument():
                return self._loaded(self.scope.arguments[node.index], size)
            case ir.StackCount():
                return self.packet.number(node.stack.next)
            case ir.Result():
                return self._result(node, size)
            case ir.Number():
                return self.e.b.zext(self.test(node.condition), I64)
            case ir.RegisterCell():
                cell = self.context.register_cell(node.register, self.index(node.index, node.register.size))
                return self._loaded(cell, size)
            case ir.Lookahead():
                assert self.scope.frame is not None
                return self.n.load_bits(self.scope.frame(), node.skip, node.bits, False)
            case ir.Saturate():
                return self._saturate(node, size)
            case ir.Hash():
                return self._hash(node, size)
            case ir.Binary(op=Op.SHIFT_RIGHT):
                wide = max(size, size_for(node.left.bits))
                return self.n.resize(self._shift_right(node, wide), size, False)
            case ir.Binary(op=Op.DIVIDE | Op.MODULO):
                wide = max(size, *(size_for(side.bits) for side in (node.left, node.right)))
                return self.n.resize(self._divide(node, wide), size, False)
        raise AssertionError(f"unknown expression {type(node).__name__}")

    def _varbit(self, node: ir.FieldValue, size: int) -> Number:
        """Return the value of a varbit field; its bytes are at the start of its cell, followed by zeros."""
        header = self.references.header(node.field.header)
        cell = header.slot(node.field.offset)
        value = self.n.resize(self.packet.load(cell), max(size, size_for(cell.kind.bits)), False)
        length = self.packet.load(header.slot(header.type.length_offset))
        unused = self.e.b.sub(self.e.i64(cell.kind.bits), length)
        by = self.e.b.select(self.n.is_zero(length), self.e.i64(0), unused)  # of length 0 the value is 0 already
        return self.n.resize(self.n.shift_right(value, by, False), size, False)

    def _loaded(self, cell: Cell, size: int) -> Number:
        return self.n.resize(self.packet.load(cell), size, cell.kind.signed)

    def _result(self, node: ir.Result, size: int) -> Number:
        found = self.scope.result
        if isinstance(found, Cell):
            return self._loaded(found, size)
        return self.n.resize(found, size, node.signed)

    def _saturate(self, node: ir.Saturate, size: int) -> Number:
        value, signed = self.exact(node.operand)
        wide = max(self.n.size(value), size)
        value = self.n.resize(value, wide, signed)
        low, high = node.interval.low, node.interval.high
        assert low is not None and high is not None and low <= 0
        if signed:
            least = self.n.constant(low, wide)
            value = self.n.select(self.n.less(value, least, True), least, value)
        if high < (1 << (wide - 1 if signed else wide)) - 1:  # otherwise no value of this size exceeds it
            most = self.n.constant(high, wide)
            value = self.n.select(self.n.less(most, value, signed), most, value)
        return self.n.resize(value, size, node.to_signed)

    def _hash(self, node: ir.Hash, size: int) -> Number:
        """Return base + hash modulo `modulus`; a modulus of 0 counts as 1."""
        found = self.context.calculation(node.calculation)
        if node.modulus is not None:
            modulus = self.low(node.modulus, 64)
            zero = self.n.is_zero(modulus)
            found = self.e.b.urem(found, self.e.b.select(zero, self.e.i64(1), modulus))
        return self.n.add(self.n.resize(found, size, False), self.low(node.base, size))

    def index(self, node: Data, count: int) -> Value:
        """Return an index below `count` in 64 bits; any other one fails the frame."""
        if node.interval.within(0, count - 1):
            return self.low(node, 64)
        value, signed = self.exact(node)
        with self.e.if_then(self.e.b.not_(self.n.less(value, self.n.constant(count, self.n.size(value)), False))):
            self.context.fail(Failure.INDEX, value, signed, count - 1)
        return self.n.limbs(value)[0]

    def checked_index(self, node: Data, count: int) -> tuple[Value, Value | None]:
        """Return (an index in 64 bits, the condition that it is below `count`: None when it always is)."""
        if node.interval.within(0, count - 1):
            return self.low(node, 64), None
        value, _ = self.exact(node)
        return self.n.limbs(value)[0], self.n.less(value, self.n.constant(count, self.n.size(value)), False)

    # ---- stored values

    def store(self, target: Cell, value: Data) -> None:
        """Emit the store of a value in a cell."""
        if not target.kind.wide:
            self.packet.store(target, self.low(value, 8 * target.kind.bytes_))
            return
        source = self._stored_cell(value)
        if source is not None and source.kind == target.kind:
            self.packet.copy(target, source)
            return
        if isinstance(value, ir.Constant) and value.value == 0:
            self.packet.clear(target)
            return
        lanes, rest = divmod(target.kind.bits, 32)
        if rest or not self.lanes.store(target.pointer, value, lanes):
            count = size_for(target.kind.bits) // 64
            self.n.store_limbs(self._stored_stream(value, count), target.pointer, target.kind.bytes_)
        self.packet.written(target)

    def _stored_stream(self, value: Data, count: int) -> Iterator[Value]:
        """Yield the limbs of a stored value, truncated to the cell."""
        if isinstance(value, ir.Cut) and size_for(value.bits) == 64 * count:
            limbs = self.stream(value.operand, count)
            return self._truncate_last(limbs, count, value.bits, value.to_signed)
        return self.stream(value, count)

    def _truncate_last(self, limbs: Iterator[Value], count: int, bits: int, signed: bool) -> Iterator[Value]:
        for number, limb in enumerate(limbs, 1):
            yield self.n.truncate(limb, bits - 64 * (count - 1), signed) if number == count else limb

    def _stored_cell(self, value: Data) -> Cell | None:
        """Return the cell that already holds a value, or None."""
        if isinstance(value, ir.FieldValue) and not value.field.type.varbit:
            return self.references.field(value.field)
        if isinstance(value, ir.Result) and isinstance(self.scope.result, Cell):
            return self.scope.result
        if isinstance(value, ir.RegisterCell):
            return self.context.register_cell(value.register, self.index(value.index, value.register.size))
        if isinstance(value, ir.Argument):
            return self.scope.arguments[value.index]
        return None

    # ---- conditions

    def test(self, node: ir.Condition) -> Value:
        """Return a condition as an i1."""
        self.e.count()
        match node:
            case ir.Truth():
                return self.e.bit(node.value)
            case ir.NonZero():
                return self.e.b.not_(self.n.is_zero(self.exact(node.operand)[0]))
            case ir.Join():
                return self._join(node)
            case ir.Not():
                return self.e.b.not_(self.test(node.operand))
            case ir.Compare():
                return self._compare(node)
            case ir.SameTruth():
                return self.e.b.not_(self.e.b.xor(self.test(node.left), self.test(node.right)))
            case ir.Valid():
                return self.valid(self.references.valid(node.header))
            case ir.ValidUnion():
                return self._valid_union(node.union)
            case ir.SameHeader():
                left, right = self.references.header(node.left), self.references.header(node.right)
                return self._same(left.slots(), right.slots())
            case ir.SameUnion():
                return self._same_union(node)
            case ir.ChooseTruth():
                return self._choose_truth(node)
        raise AssertionError(f"unknown condition {type(node).__name__}")

    def valid(self, cell: Cell) -> Value:
        """Return a validity as an i1."""
        return self.e.b.not_(self.n.is_zero(self.packet.load(cell)))

    def _select_condition(self, condition: Value, yes: Callable[[], Value], no: Callable[[], Value]) -> Value:
        where = self.e.local(I1, align=1)
        self.e.if_else(
            condition, lambda: self.e.store(yes(), where, align=1), lambda: self.e.store(no(), where, align=1)
        )
        return self.e.load(I1, where, align=1)

    def _join(self, node: ir.Join) -> Value:
        left = self.test(node.left)
        if node.how is ir.Junction.AND:
            return self._select_condition(left, lambda: self.test(node.right), lambda: self.e.bit(False))
        return self._select_condition(left, lambda: self.e.bit(True), lambda: self.test(node.right))

    def _choose_truth(self, node: ir.ChooseTruth) -> Value:
        return self._select_condition(
            self.test(node.condition), lambda: self.test(node.yes), lambda: self.test(node.no)
        )

    def _compare(self, node: ir.Compare) -> Value:
        a, b = node.left, node.right
        signed = a.signed or b.signed
        bits = max(a.signed_bits, b.signed_bits) if signed else max(a.bits, b.bits)
        left, right = self.low(node.left, size_for(bits)), self.low(node.right, size_for(bits))
        match node.how:
            case ir.Relation.EQUAL:
                return self.n.equal(left, right)
            case ir.Relation.UNEQUAL:
                return self.e.b.not_(self.n.equal(left, right))
            case ir.Relation.LESS:
                return self.n.less(left, right, signed)
            case ir.Relation.GREATER:
                return self.n.less(right, left, signed)
            case ir.Relation.AT_MOST:
                return self.e.b.not_(self.n.less(right, left, signed))
        return self.e.b.not_(self.n.less(left, right, signed))

    def _same(self, left: list[Cell], right: list[Cell]) -> Value:
        """Compare two headers: the first is valid and all slots are equal, the validity among them."""
        found = self.valid(left[-1])
        for a, b in zip(left, right, strict=True):
            found = self.e.b.and_(found, self.packet.same(a, b))
        return found

    def _valid_union(self, ref: UnionRef) -> Value:
        found = self.e.bit(False)
        for header in self.references.members(ref):
            found = self.e.b.or_(found, self.valid(header.slots()[-1]))
        return found

    def _same_union(self, node: ir.SameUnion) -> Value:
        found = self.e.bit(False)
        pairs = zip(self.references.members(node.left), self.references.members(node.right), strict=True)
        for left, right in pairs:
            found = self.e.b.or_(found, self._same(left.slots(), right.slots()))
        return found


def _may_fail(node: Data) -> bool:
    """Return whether computing the value may fail the frame."""
    return any(
        isinstance(part, (ir.RegisterCell, HeaderElement, UnionElement))
        or (isinstance(part, ir.Binary) and part.op in (Op.DIVIDE, Op.MODULO))
        for part in walk(node)
    )
