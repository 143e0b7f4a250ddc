"""Extraction: bytes of the frame into the slots of a header.

In the generated code `d` is the frame, `n` its length, `o` the offset of the next byte to parse.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from p4reduce_switch.program.ir.data import Data
from p4reduce_switch.program.ir.places import HeaderElement, HeaderRef, HeaderType, Member, Stack
from p4reduce_switch.program.ir.program import ParserErrors
from p4reduce_switch.program.ir.statements import Extract
from p4reduce_switch.program.python.expressions import Expressions, Start, literal, rivals, slot, slots
from p4reduce_switch.program.python.source import Source
from p4reduce_switch.program.python.units import STRUCT_CODES, Unit, format_of, parts


class Extraction:
    """Writes extract operations. `fail(condition, error)` writes a check that ends parsing."""

    def __init__(
        self, source: Source, expressions: Expressions, errors: ParserErrors, fail: Callable[[str, int], None]
    ) -> None:
        self.source = source
        self.expressions = expressions
        self.errors = errors
        self.fail = fail

    def write(self, node: Extract) -> None:
        """One extract."""
        stack = _stack_of(node.header)
        if stack is not None:
            self.fail(f"f[{stack.next}] >= {stack.size}", self.errors.stack_out_of_bounds)
            self.source.add(f"e = {stack.base} + {stack.stride} * f[{stack.next}]")
        start, kind = self.expressions.start(node.header), node.header.type
        if node.bits is not None:
            self._varbit(start, kind, node.bits)
        else:
            self._fixed(start, kind)
        others = rivals(node.header, start)
        if others:
            self.source.add(" = ".join(others) + " = 0")
        if stack is not None:
            self.source.add(f"f[{stack.next}] += 1")

    def _fixed(self, start: Start, kind: HeaderType) -> None:
        size = kind.fixed_bits // 8
        units, _, _ = parts(kind)
        self.fail(f"o + {size} > n", self.errors.packet_too_short)
        values = self._unpack(units)
        if len(values) == 1:
            self.source.add(f"{slot(start)} = {values[0]}; {slot(start, kind.valid_offset)} = 1")
        else:
            self.source.add(f"{slots(start, kind.slots)} = ({', '.join([*values, '1'])},)")
        self.source.add(f"o += {size}")

    def _unpack(self, group: list[Unit]) -> list[str]:
        """Source of the values of all fields of units that start at `o`."""
        if not group:
            return []
        names = [f"u{i}" for i in range(len(group))]
        if len(group) == 1:
            size = group[0].width // 8
            number = "d[o]" if size == 1 else f"from_bytes(d[o:o + {size}], 'big')"
            if len(group[0].fields) == 1:
                names[0] = number
            else:
                self.source.add(f"u0 = {number}")
        else:
            unpack = self.source.bind("unpack", struct.Struct(format_of(group)).unpack_from)
            self.source.add(f"{', '.join(names)} = {unpack}(d, o)")
        values = []
        for name, unit in zip(names, group, strict=True):
            as_bytes = len(group) > 1 and unit.width not in STRUCT_CODES
            number = f"from_bytes({name}, 'big')" if as_bytes else name
            if as_bytes and len(unit.fields) > 1:
                self.source.add(f"{name} = {number}")
                number = name
            values += _split(unit, number)
        return values

    def _varbit(self, start: Start, kind: HeaderType, bits: Data) -> None:
        before, varbit, after = parts(kind)
        assert varbit is not None
        fixed = kind.fixed_bits // 8
        self.source.add(f"b = {self.expressions.data(bits)}")
        self.fail("b & 7 or b < 0", self.errors.parser_invalid_argument)
        self.source.add("b >>= 3")
        self.fail(f"o + {fixed} + b > n", self.errors.packet_too_short)
        if kind.max_bytes:
            self.fail(f"{fixed} + b > {kind.max_bytes}", self.errors.header_too_short)
        lead = sum(unit.width for unit in before) // 8
        for item, value in zip(kind.fields, self._unpack(before), strict=False):
            self.source.add(f"{slot(start, item.offset)} = {value}")
        self.source.add(f"o += {lead}")
        self.source.add(f"{slot(start, varbit.offset)} = from_bytes(d[o:o + b], 'big')")
        self.source.add(f"{slot(start, kind.length_offset)} = b << 3")
        self.source.add("o += b")
        for item, value in zip(kind.fields[varbit.offset + 1 :], self._unpack(after), strict=True):
            self.source.add(f"{slot(start, item.offset)} = {value}")
        self.source.add(f"o += {fixed - lead}")
        self.source.add(f"{slot(start, kind.valid_offset)} = 1")


def _stack_of(ref: HeaderRef) -> Stack | None:
    """The stack whose next element is filled."""
    if isinstance(ref, HeaderElement):
        return ref.stack
    return ref.union.stack if isinstance(ref, Member) else None


def _split(unit: Unit, number: str) -> list[str]:
    """Source of the fields inside a unit."""
    values, position = [], unit.width
    for item in unit.fields:
        position -= item.width
        code = f"({number} >> {position})" if position else number
        if position + item.width < unit.width:
            code = f"({code} & {literal((1 << item.width) - 1)})"
        if item.signed:
            half, mask = literal(1 << (item.width - 1)), literal((1 << item.width) - 1)
            code = f"(({code} + {half} & {mask}) - {half})"
        values.append(code)
    return values
