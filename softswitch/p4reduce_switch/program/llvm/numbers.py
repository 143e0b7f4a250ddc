"""Integers of any width: up to 128 bits an i64 or i128, above that a list of 64-bit limbs, the lowest first.

LLVM's integers above 128 bits are not used: some targets miscompile them or abort.

A value is an integer modulo 2^size, where size is 64, 128, or a multiple of 64. In memory narrow values are
native words; wide fields (more than 128 bits) are network bytes, as in a frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from llvmlite import ir

from p4reduce_switch.program.layout import NATIVE
from p4reduce_switch.program.llvm.emitter import I1, I64, I128, POINTER, VOID, Emitter, Value
from p4reduce_switch.program.llvm.helpers import Helpers
from p4reduce_switch.program.memory import WORD

Number = Value
"""An i64, an i128 or a list of limbs."""


def size_for(bits: int) -> int:
    """Return the size of a value of that many bits."""
    return 64 if bits <= 64 else 128 if bits <= 128 else (bits + 63) // 64 * 64


class Numbers:
    """Emits arithmetic. The operands of an operation have the same size."""

    def __init__(self, emitter: Emitter, helpers: Helpers) -> None:
        self.e = emitter
        self.helpers = helpers

    # ---- representations

    def constant(self, number: int, size: int) -> Number:
        """Return a constant modulo 2^size."""
        if size <= NATIVE:
            return ir.Constant(I64 if size == 64 else I128, number & (1 << size) - 1)
        return [self.e.i64(number >> shift & WORD) for shift in range(0, size, 64)]

    def size(self, value: Number) -> int:
        """Return the size of a value."""
        return 64 * len(value) if isinstance(value, list) else int(value.type.width)

    def limbs(self, value: Number) -> list[Value]:
        """Return the limbs of a value of any size."""
        if isinstance(value, list):
            return value
        if value.type.width == 64:
            return [value]
        b = self.e.b
        return [b.trunc(value, I64), b.trunc(b.lshr(value, ir.Constant(I128, 64)), I64)]

    def from_limbs(self, limbs: Sequence[Value]) -> Number:
        """Return the value of limbs."""
        if len(limbs) == 1:
            return limbs[0]
        if len(limbs) > 2:
            return list(limbs)
        b = self.e.b
        high = b.shl(b.zext(limbs[1], I128), ir.Constant(I128, 64))
        return b.or_(b.zext(limbs[0], I128), high)

    def resize(self, value: Number, size: int, signed: bool) -> Number:
        """Return a value in another size: truncated, or extended by zeros or its sign."""
        own = self.size(value)
        if own == size:
            return value
        b = self.e.b
        if own <= NATIVE and size <= NATIVE:
            if size < own:
                return b.trunc(value, I64)
            return b.sext(value, I128) if signed else b.zext(value, I128)
        limbs = self.limbs(value)
        if size < own:
            return self.from_limbs(limbs[: size // 64])
        fill = b.ashr(limbs[-1], self.e.i64(63)) if signed else self.e.i64(0)
        return self.from_limbs([*limbs, *[fill] * ((size - own) // 64)])

    # ---- arithmetic

    def add(self, a: Number, b: Number) -> Number:
        """a + b."""
        if not isinstance(a, list):
            return self.e.b.add(a, b)
        return list(self.add_limbs(a, b))

    def add_limbs(self, a: Iterable[Value], b: Iterable[Value]) -> Iterator[Value]:
        """The limbs of a + b, one by one."""
        return self._chain(a, b, "llvm.uadd.with.overflow.i64")

    def subtract(self, a: Number, b: Number) -> Number:
        """a - b."""
        if not isinstance(a, list):
            return self.e.b.sub(a, b)
        return list(self.subtract_limbs(a, b))

    def subtract_limbs(self, a: Iterable[Value], b: Iterable[Value]) -> Iterator[Value]:
        """The limbs of a - b, one by one."""
        return self._chain(a, b, "llvm.usub.with.overflow.i64")

    def _chain(self, a: Iterable[Value], b: Iterable[Value], name: str) -> Iterator[Value]:
        """Yield limbs with a carry, or a borrow, from each to the next."""
        builder = self.e.b
        function = self.e.module.intrinsic(name, ir.LiteralStructType([I64, I1]), [I64, I64])
        carry = None
        for x, y in zip(a, b, strict=True):
            self.e.count(8)
            pair = builder.call(function, [x, y])
            result, over = builder.extract_value(pair, 0), builder.extract_value(pair, 1)
            if carry is not None:
                pair = builder.call(function, [result, builder.zext(carry, I64)])
                result, more = builder.extract_value(pair, 0), builder.extract_value(pair, 1)
                over = builder.or_(over, more)
            carry = over
            yield result

    def multiply(self, a: Number, b: Number) -> Number:
        """a * b."""
        if not isinstance(a, list):
            return self.e.b.mul(a, b)
        return self._call_helper(self.helpers.multiply, a, b)

    def divide(self, a: Number, b: Number) -> tuple[Number, Number]:
        """Quotient and remainder of a by b, as unsigned numbers; b is not 0."""
        if self.size(a) == 64:
            return self.e.b.udiv(a, b), self.e.b.urem(a, b)
        x, y = self.store_on_stack(self.limbs(a)), self.store_on_stack(self.limbs(b))
        count = self.size(a) // 64
        quotient, rest = self.e.local(I64, count), self.e.local(I64, count)
        self.e.b.call(self.helpers.divide, [quotient, rest, x, y, self.e.i64(count)])
        return self.load_from_stack(quotient, count), self.load_from_stack(rest, count)

    def _call_helper(self, function: Value, a: list[Value], b: list[Value]) -> Number:
        x, y, out = self.store_on_stack(a), self.store_on_stack(b), self.e.local(I64, len(a))
        self.e.b.call(function, [out, x, y, self.e.i64(len(a))])
        return self.load_from_stack(out, len(a))

    def store_on_stack(self, limbs: Sequence[Value]) -> Value:
        """Store limbs on the stack."""
        where = self.e.local(I64, len(limbs))
        for index, limb in enumerate(limbs):
            self.e.store(limb, self.e.word(where, index))
        return where

    def load_from_stack(self, where: Value, count: int) -> Number:
        """Load the value of limbs."""
        return self.from_limbs([self.e.load(I64, self.e.word(where, index)) for index in range(count)])

    # ---- bits

    def and_(self, a: Number, b: Number) -> Number:
        """a & b."""
        return self._each(self.e.b.and_, a, b)

    def or_(self, a: Number, b: Number) -> Number:
        """a | b."""
        return self._each(self.e.b.or_, a, b)

    def xor(self, a: Number, b: Number) -> Number:
        """a ^ b."""
        return self._each(self.e.b.xor, a, b)

    def not_(self, a: Number) -> Number:
        """~a."""
        return self._each(self.e.b.not_, a)

    def _each(self, operation: Callable[..., Value], *operands: Number) -> Number:
        """Return the result of a bitwise operation, which is the same for each limb."""
        if isinstance(operands[0], list):
            self.e.count(len(operands[0]))
            return [operation(*limbs) for limbs in zip(*operands, strict=True)]
        return operation(*operands)

    def shift_left_by(self, value: Number, by: int) -> Number:
        """value << by."""
        size = self.size(value)
        if by == 0:
            return value
        if by >= size:
            return self.constant(0, size)
        if size <= NATIVE:
            return self.e.b.shl(value, ir.Constant(value.type, by))
        b, limbs = self.e.b, self.limbs(value)
        self.e.count(3 * len(limbs))
        words, bits = divmod(by, 64)
        limbs = [self.e.i64(0)] * words + limbs[: len(limbs) - words]
        if not bits:
            return limbs
        up, down = self.e.i64(bits), self.e.i64(64 - bits)
        shifted = [b.shl(limbs[0], up)]
        for below, limb in zip(limbs, limbs[1:], strict=False):
            shifted.append(b.or_(b.shl(limb, up), b.lshr(below, down)))
        return shifted

    def shift_right_by(self, value: Number, by: int, signed: bool) -> Number:
        """value >> by."""
        size = self.size(value)
        if by == 0:
            return value
        if by >= size:
            if not signed:
                return self.constant(0, size)
            by = size - 1
        b = self.e.b
        if size <= NATIVE:
            amount = ir.Constant(value.type, by)
            return b.ashr(value, amount) if signed else b.lshr(value, amount)
        limbs = self.limbs(value)
        self.e.count(3 * len(limbs))
        words, bits = divmod(by, 64)
        fill = b.ashr(limbs[-1], self.e.i64(63)) if signed else self.e.i64(0)
        limbs = [*limbs[words:], *[fill] * words]
        if not bits:
            return limbs
        down, up = self.e.i64(bits), self.e.i64(64 - bits)
        above = [*limbs[1:], fill]
        return [b.or_(b.lshr(x, down), b.shl(y, up)) for x, y in zip(limbs, above, strict=True)]

    def shift_left(self, value: Number, by: Value) -> Number:
        """value << by, for an i64 below the size."""
        size = self.size(value)
        if size <= NATIVE:
            return self.e.b.shl(value, by if size == 64 else self.e.b.zext(by, I128))
        return self._shift_by_helper(self.helpers.shift_left, value, by, self.e.i64(0))

    def shift_right(self, value: Number, by: Value, signed: bool) -> Number:
        """value >> by, for an i64 below the size."""
        b, size = self.e.b, self.size(value)
        if size <= NATIVE:
            by = by if size == 64 else b.zext(by, I128)
            return b.ashr(value, by) if signed else b.lshr(value, by)
        fill = b.ashr(value[-1], self.e.i64(63)) if signed else self.e.i64(0)
        return self._shift_by_helper(self.helpers.shift_right, value, by, fill)

    def _shift_by_helper(self, function: Value, value: list[Value], by: Value, fill: Value) -> Number:
        source, out = self.store_on_stack(value), self.e.local(I64, len(value))
        self.e.b.call(function, [out, source, by, self.e.i64(len(value)), fill])
        return self.load_from_stack(out, len(value))

    def truncate(self, value: Number, bits: int, signed: bool) -> Number:
        """Return the low `bits` bits of a value, extended by zeros or their sign to its size."""
        size = self.size(value)
        if bits == size:
            return value
        if not signed:
            return self.and_(value, self.constant((1 << bits) - 1, size))
        return self.shift_right_by(self.shift_left_by(value, size - bits), size - bits, True)

    # ---- comparisons

    def is_zero(self, value: Number) -> Value:
        """value == 0."""
        b = self.e.b
        if isinstance(value, list):
            self.e.count(len(value))
            together = value[0]
            for limb in value[1:]:
                together = b.or_(together, limb)
            value = together
        return b.icmp_unsigned("==", value, ir.Constant(value.type, 0))

    def equal(self, a: Number, b: Number) -> Value:
        """a == b."""
        if isinstance(a, list):
            return self.is_zero(self.xor(a, b))
        return self.e.b.icmp_unsigned("==", a, b)

    def less(self, a: Number, b: Number, signed: bool) -> Value:
        """a < b."""
        builder = self.e.b
        if not isinstance(a, list):
            return (builder.icmp_signed if signed else builder.icmp_unsigned)("<", a, b)
        if signed:
            top = self.e.i64(1 << 63)
            a, b = [*a[:-1], builder.xor(a[-1], top)], [*b[:-1], builder.xor(b[-1], top)]
        self.e.count(3 * len(a))
        lower: Value = self.e.bit(False)
        for x, y in zip(a, b, strict=True):
            lower = builder.select(builder.icmp_unsigned("==", x, y), lower, builder.icmp_unsigned("<", x, y))
        return lower

    def select(self, condition: Value, yes: Number, no: Number) -> Number:
        """Select one of two computed values."""
        return self._each(partial(self.e.b.select, condition), yes, no)

    # ---- network byte order

    def load_bytes(self, pointer: Value, count: int) -> Number:
        """Load a big-endian number of that many bytes."""
        limbs = []
        for end in range(count, 0, -8):
            limbs.append(self._load_limb(pointer, max(0, end - 8), min(end, 8)))
        return self.from_limbs(limbs) if limbs else self.constant(0, 64)

    def load_limbs(self, pointer: Value, count: int, signed: bool) -> Iterator[Value]:
        """Yield the limbs of a big-endian number of that many bytes; the last one is extended."""
        for end in range(count, 0, -8):
            limb = self._load_limb(pointer, max(0, end - 8), min(end, 8))
            yield self.truncate(limb, 8 * end, True) if signed and end < 8 else limb

    def _load_limb(self, pointer: Value, start: int, count: int) -> Value:
        """Load up to 8 bytes."""
        b, result = self.e.b, None
        position = start
        for size in _pieces(count):
            kind = ir.IntType(8 * size)
            part = self.e.load(kind, self.e.at(pointer, position), align=1)
            part = b.bswap(part) if size > 1 else part
            part = part if size == 8 else b.zext(part, I64)
            result = part if result is None else b.or_(b.shl(result, self.e.i64(8 * size)), part)
            position += size
        assert result is not None
        return result

    def store_bytes(self, value: Number, pointer: Value, count: int) -> None:
        """Store the low bytes of a value in big-endian order."""
        self.store_limbs(iter(self.limbs(value)), pointer, count)

    def store_limbs(self, limbs: Iterator[Value], pointer: Value, count: int) -> None:
        """Store limbs in big-endian order; missing ones count as 0."""
        for end in range(count, 0, -8):
            limb = next(limbs, None)
            limb = self.e.i64(0) if limb is None else limb
            self._store_limb(limb, pointer, max(0, end - 8), min(end, 8))

    def _store_limb(self, limb: Value, pointer: Value, start: int, count: int) -> None:
        b, left = self.e.b, count
        for size in _pieces(count):
            left -= size
            part = b.lshr(limb, self.e.i64(8 * left)) if left else limb
            kind = ir.IntType(8 * size)
            part = part if size == 8 else b.trunc(part, kind)
            part = b.bswap(part) if size > 1 else part
            self.e.store(part, self.e.at(pointer, start), align=1)
            start += size

    def load_bits(self, pointer: Value, skip: int, bits: int, signed: bool) -> Number:
        """Load the number in bits skip..skip + bits - 1, in its size."""
        first, last = skip // 8, (skip + bits + 7) // 8
        found = self.load_bytes(self.e.at(pointer, first), last - first)
        found = self.shift_right_by(found, 8 * last - skip - bits, False)
        return self.truncate(self.resize(found, size_for(bits), False), bits, signed)


def _pieces(count: int) -> list[int]:
    """Return powers of two that add up to `count`, each at most 8."""
    return [size for size in (8, 4, 2, 1) if count & size]


__all__ = ["NATIVE", "POINTER", "VOID", "WORD", "Number", "Numbers", "size_for"]
