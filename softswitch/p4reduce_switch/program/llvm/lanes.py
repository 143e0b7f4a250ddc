"""Wide values in vectors of 32-bit lanes, where no carry passes from one lane to the next."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from p4reduce_switch.program.ir.expressions import Binary, Constant, FieldValue
from p4reduce_switch.program.ir.intervals import Data, Op
from p4reduce_switch.program.llvm.emitter import I32, Emitter, Value

LANE = 0xFFFFFFFF
_VECTOR = 8
"""Lanes of a vector: 256 bits."""


class Lanes:
    """Emits values of `count` lanes; `bytes_of` returns a pointer to a wide field's value."""

    def __init__(self, emitter: Emitter, bytes_of: Callable[[FieldValue], Value]) -> None:
        self.e = emitter
        self._bytes_of = bytes_of

    def store(self, target: Value, node: Data, count: int) -> bool:
        """Store a value as network bytes; return False, and emit nothing, if lanes depend on each other."""
        if _highest(node, count) is None:
            return False
        for first in range(0, count, _VECTOR):
            size = min(_VECTOR, count - first)
            found = self._vector(node, first, size, count, {})
            self.e.store(self._swapped(found, size), self.e.at(target, 4 * first), align=1)
        return True

    def _vector(self, node: Data, first: int, size: int, count: int, loaded: dict[int | None, Value]) -> Value:
        """Return `size` lanes from `first` on, the highest lane of the value being the first."""
        kind = ir.VectorType(I32, size)
        match node:
            case Constant():
                return ir.Constant(kind, [I32(node.value >> 32 * (count - 1 - first - i) & LANE) for i in range(size)])
            case FieldValue():
                slot = node.field.slot
                if slot not in loaded:
                    found = self.e.load(kind, self.e.at(self._bytes_of(node), 4 * first), align=1)
                    loaded[slot] = self._swapped(found, size)
                return loaded[slot]
        assert isinstance(node, Binary)
        self.e.count()
        left, right = (self._vector(side, first, size, count, loaded) for side in (node.left, node.right))
        emit = {Op.ADD: self.e.b.add, Op.AND: self.e.b.and_, Op.OR: self.e.b.or_, Op.XOR: self.e.b.xor}
        return emit[node.op](left, right)

    def _swapped(self, value: Value, size: int) -> Value:
        swap = self.e.module.intrinsic(f"llvm.bswap.v{size}i32", value.type, [value.type])
        return self.e.b.call(swap, [value])


def _highest(node: Data, count: int) -> list[int] | None:
    """Return the most that each lane can be, the lowest first; None where lanes depend on each other."""
    match node:
        case Constant() if 0 <= node.value < 1 << 32 * count:
            return [node.value >> 32 * lane & LANE for lane in range(count)]
        case FieldValue() if node.field.slot is not None and node.field.type.width == 32 * count and not node.signed:
            return [LANE] * count
        case Binary(op=Op.ADD | Op.AND | Op.OR | Op.XOR):
            left, right = _highest(node.left, count), _highest(node.right, count)
            if left is not None and right is not None:
                both = [_BOUNDS[node.op](a, b) for a, b in zip(left, right, strict=True)]
                return both if max(both) <= LANE else None
    return None


def _covering(a: int, b: int) -> int:
    return (1 << max(a, b).bit_length()) - 1


_BOUNDS: dict[Op, Callable[[int, int], int]] = {Op.ADD: int.__add__, Op.AND: min, Op.OR: _covering, Op.XOR: _covering}
