"""Extraction: bytes of the frame into the slots of a header.

In the generated code `d` is the frame, `n` its length, `o` the offset of the next byte to parse.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from .deparser import STRUCT_CODES, Unit, format_of, parts
from .errors import InvalidProgram, UnsupportedConstruct
from .expressions import Expressions
from .layout import Layout, Stack
from .references import HeaderRef, UnionRef
from .source import Source
from .values import Value, unsigned, wrap

Json = dict[str, Any]


class Extraction:
    """Writes extract operations. `fail(condition, error)` writes a check that ends parsing."""

    def __init__(
        self, source: Source, layout: Layout, expressions: Expressions, fail: Callable[[str, str], None]
    ) -> None:
        self.source = source
        self.layout = layout
        self.expressions = expressions
        self.fail = fail

    def extract(self, target: Json, length: Value | None) -> None:
        if target["type"] == "regular":
            header = self.layout.header(target["value"])
            rivals = tuple(f"f[{slot}]" for slot in header.rivals)
            self._extract_header(HeaderRef(header.type, str(header.base), rivals), length)
        elif target["type"] == "stack":
            stack = self.expressions.stack(target["value"])
            if stack.type is None:
                raise InvalidProgram(f"{stack.name} is not a stack of headers")
            self._next_element(stack)
            self._extract_header(HeaderRef(stack.type, "e"), length)
            self.source.add(f"f[{stack.next}] += 1")
        elif target["type"] == "union_stack":
            stack = self.expressions.stack(target["value"][0])
            if stack.union is None:
                raise InvalidProgram(f"{stack.name} is not a stack of unions")
            self._next_element(stack)
            member = list(stack.union.members).index(target["value"][1])
            self._extract_header(UnionRef(stack.union, "e").member(member), length)
            self.source.add(f"f[{stack.next}] += 1")
        else:
            raise UnsupportedConstruct(f"extract to a {target['type']}")

    def _next_element(self, stack: Stack) -> None:
        self.fail(f"f[{stack.next}] >= {stack.size}", "StackOutOfBounds")
        self.source.add(f"e = {stack.base} + {stack.stride} * f[{stack.next}]")

    def _extract_header(self, ref: HeaderRef, length: Value | None) -> None:
        if ref.type.varbit:
            if length is None:
                raise UnsupportedConstruct(f"length expression in the varbit header type {ref.type.name}")
            self._extract_varbit(ref, length)
        else:
            size = ref.type.fixed_bits // 8
            before, _, _ = parts(ref.type)
            self.fail(f"o + {size} > n", "PacketTooShort")
            values = self._unpack(before)
            self._assign_slots(ref, values)
            self.source.add(f"o += {size}")
        if ref.rivals:
            self.source.add(" = ".join(ref.rivals) + " = 0")

    def _assign_slots(self, ref: HeaderRef, values: list[str]) -> None:
        """Fill the fields (all of the slots but validity, which becomes 1)."""
        if len(values) == 1:
            self.source.add(f"{ref.slot(0)} = {values[0]}; {ref.valid} = 1")
        else:
            self.source.add(f"{ref.slots(ref.type.slots)} = ({', '.join(values)}, 1)")

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

    def _extract_varbit(self, ref: HeaderRef, length: Value) -> None:
        before, varbit, after = parts(ref.type)
        assert varbit is not None
        fixed = ref.type.fixed_bits // 8
        self.source.add(f"b = {length.code}")
        self.fail("b & 7 or b < 0", "ParserInvalidArgument")
        self.source.add("b >>= 3")
        self.fail(f"o + {fixed} + b > n", "PacketTooShort")
        if ref.type.max_bytes:
            self.fail(f"{fixed} + b > {ref.type.max_bytes}", "HeaderTooShort")
        lead = sum(unit.width for unit in before) // 8
        for item, value in zip(ref.type.fields, self._unpack(before), strict=False):
            self.source.add(f"{ref.slot(item.offset)} = {value}")
        self.source.add(f"o += {lead}")
        self.source.add(f"{ref.slot(varbit.offset)} = from_bytes(d[o:o + b], 'big')")
        self.source.add(f"{ref.slot(ref.type.length_offset)} = b << 3")
        self.source.add("o += b")
        for item, value in zip(ref.type.fields[varbit.offset + 1 :], self._unpack(after), strict=True):
            self.source.add(f"{ref.slot(item.offset)} = {value}")
        self.source.add(f"o += {fixed - lead}")
        self.source.add(f"{ref.valid} = 1")


def _split(unit: Unit, number: str) -> list[str]:
    """Source of the fields inside a unit."""
    values, position = [], unit.width
    for item in unit.fields:
        position -= item.width
        code = f"({number} >> {position})" if position else number
        if position + item.width < unit.width:
            code = f"({code} & {(1 << item.width) - 1:#x})"
        values.append(wrap(unsigned(code, item.width), item.width, item.signed).code)
    return values
