"""How wide a value can be, also where the IR does not follow its interval: signed bits, and long shifts."""

from __future__ import annotations

from dataclasses import dataclass

from p4reduce_switch.program.errors import UnsupportedConstructError
from p4reduce_switch.program.ir.data import Data
from p4reduce_switch.program.ir.expressions import Binary, Choose, Complement, FieldValue
from p4reduce_switch.program.ir.intervals import WIDEST_SHIFT, Op
from p4reduce_switch.program.layout import kinds_of

WIDEST = 1 << 15
"""Bits of the widest value that is computed as a whole."""


@dataclass(frozen=True, slots=True)
class Extent:
    """All values fit `bits` bits, in two's complement when `signed`."""

    bits: int
    signed: bool

    @property
    def with_sign(self) -> int:
        """Bits in two's complement."""
        return self.bits if self.signed else self.bits + 1


class Extents:
    """Answers for each node once."""

    def __init__(self) -> None:
        self._known: dict[Data, Extent] = {}

    def of(self, node: Data) -> Extent:
        """The extent of a value; UnsupportedConstructError when it is not known or too wide."""
        if node not in self._known:
            width = node.width
            self._known[node] = Extent(width, node.signed) if width is not None else self._unknown(node)
        found = self._known[node]
        if found.bits > WIDEST:
            raise UnsupportedConstructError(f"a value of more than {WIDEST} bits")
        return found

    def _unknown(self, node: Data) -> Extent:
        match node:
            case Complement():
                return Extent(self.of(node.operand).with_sign, True)
            case Choose():
                return Extent(max(self.of(node.yes).with_sign, self.of(node.no).with_sign), True)
            case Binary():
                return Extent(self._binary(node), True)
            case FieldValue() if node.field.type.varbit:
                return Extent(kinds_of(node.field.header.type)[node.field.offset].bits, False)
        raise UnsupportedConstructError("a number without bounds in an expression")

    def _binary(self, node: Binary) -> int:
        a = self.of(node.left).with_sign
        match node.op:
            case Op.SHIFT_RIGHT | Op.DIVIDE:
                return a
            case Op.SHIFT_LEFT:
                most = node.right.interval.high
                return a + (WIDEST_SHIFT if most is None else min(most, WIDEST_SHIFT))
        b = self.of(node.right).with_sign
        match node.op:
            case Op.ADD | Op.SUBTRACT:
                return max(a, b) + 1
            case Op.MULTIPLY:
                return a + b
        return max(a, b)
