"""The bit width of each value, also where the IR has no interval: signed values and long shifts."""

from __future__ import annotations

from dataclasses import dataclass

from p4reduce_switch.program.errors import UnsupportedConstructError
from p4reduce_switch.program.ir.expressions import Binary, Choose, Complement, FieldValue
from p4reduce_switch.program.ir.intervals import WIDEST_SHIFT, Data, Op
from p4reduce_switch.program.layout import kinds_of

WIDEST = 1 << 15
"""Bits of the widest value that is computed exactly."""


@dataclass(frozen=True, slots=True)
class BitWidth:
    """All values fit `bits` bits, in two's complement when `signed`."""

    bits: int
    signed: bool

    @property
    def signed_bits(self) -> int:
        """Bits in two's complement."""
        return self.bits if self.signed else self.bits + 1


class BitWidths:
    """The bit widths of nodes, each computed once."""

    def __init__(self) -> None:
        self._known: dict[Data, BitWidth] = {}

    def of(self, node: Data) -> BitWidth:
        """Return the bit width of a value; UnsupportedConstructError when it is unbounded or too wide."""
        if node not in self._known:
            width = node.width
            self._known[node] = BitWidth(width, node.signed) if width is not None else self._unbounded(node)
        found = self._known[node]
        if found.bits > WIDEST:
            raise UnsupportedConstructError(f"a value of more than {WIDEST} bits")
        return found

    def _unbounded(self, node: Data) -> BitWidth:
        match node:
            case Complement():
                return BitWidth(self.of(node.operand).signed_bits, True)
            case Choose():
                return BitWidth(max(self.of(node.yes).signed_bits, self.of(node.no).signed_bits), True)
            case Binary():
                return BitWidth(self._binary(node), True)
            case FieldValue() if node.field.type.varbit:
                return BitWidth(kinds_of(node.field.header.type)[node.field.offset].bits, False)
        raise UnsupportedConstructError("a number without bounds in an expression")

    def _binary(self, node: Binary) -> int:
        a = self.of(node.left).signed_bits
        match node.op:
            case Op.SHIFT_RIGHT | Op.DIVIDE:
                return a
            case Op.SHIFT_LEFT:
                most = node.right.interval.high
                return a + (WIDEST_SHIFT if most is None else min(most, WIDEST_SHIFT))
        b = self.of(node.right).signed_bits
        match node.op:
            case Op.ADD | Op.SUBTRACT:
                return max(a, b) + 1
            case Op.MULTIPLY:
                return a + b
        return max(a, b)
