"""Packing headers into bytes, and unpacking them: both follow a plan made of byte-aligned units."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from . import layout as slots
from .errors import UnsupportedConstruct
from .layout import FieldType, HeaderType, Layout
from .source import Source

STRUCT_CODES = {8: "B", 16: "H", 32: "I", 64: "Q"}


@dataclass(frozen=True)
class Unit:
    """Neighbouring fields that together fill whole bytes."""

    fields: tuple[FieldType, ...]

    @property
    def width(self) -> int:
        return sum(f.width for f in self.fields)

    @property
    def code(self) -> str:
        """The struct format of the unit: a number, or a string of bytes."""
        return STRUCT_CODES.get(self.width, f"{self.width // 8}s")


def units(kind: HeaderType, fields: tuple[FieldType, ...]) -> list[Unit]:
    """Cut fields into the smallest units that start and end on a byte boundary."""
    result: list[Unit] = []
    pending: list[FieldType] = []
    for item in fields:
        pending.append(item)
        if sum(f.width for f in pending) % 8 == 0:
            result.append(Unit(tuple(pending)))
            pending = []
    if pending:
        raise UnsupportedConstruct(f"header type {kind.name}: it does not end on a byte boundary")
    return result


def parts(kind: HeaderType) -> tuple[list[Unit], FieldType | None, list[Unit]]:
    """Units before the varbit field, the varbit field, units after it."""
    varbit = kind.varbit
    if varbit is None:
        return units(kind, kind.fields), None, []
    return units(kind, kind.fields[: varbit.offset]), varbit, units(kind, kind.fields[varbit.offset + 1 :])


def format_of(group: list[Unit]) -> str:
    """The struct format of units in a row."""
    return ">" + "".join(unit.code for unit in group)


def unit_value(unit: Unit, slot: Any) -> str:
    """Source of the number that the unit's fields make together."""
    terms, position = [], unit.width
    for item in unit.fields:
        position -= item.width
        code = slot(item.offset)
        if item.signed:
            code = f"({code} & {(1 << item.width) - 1:#x})"
        terms.append(f"({code} << {position})" if position else code)
    return " | ".join(terms)


def pack_units(source: Source, group: list[Unit], slot: Any) -> str:
    """Source of the bytes of a row of units."""
    if len(group) == 1:
        unit = group[0]
        return f"({unit_value(unit, slot)}).to_bytes({unit.width // 8}, 'big')"
    arguments = []
    for unit in group:
        value = unit_value(unit, slot)
        arguments.append(
            value if unit.width in STRUCT_CODES else f"({value}).to_bytes({unit.width // 8}, 'big')"
        )
    packer = source.bind("pack", struct.Struct(format_of(group)).pack)
    return f"{packer}({', '.join(arguments)})"


def write_deparser(source: Source, layout: Layout, order: list[str], name: str) -> None:
    """Write `name(f) -> bytes`: the valid headers of `order`, then the payload."""
    with source.block(f"def {name}(f):"):
        source.add("out = []")
        for header_name in order:
            header = layout.header(header_name)
            before, varbit, after = parts(header.type)

            def slot(offset: int, base: int = header.base) -> str:
                return f"f[{base + offset}]"

            with source.block(f"if f[{header.valid}]:"):
                if before:
                    source.add(f"out.append({pack_units(source, before, slot)})")
                if varbit:
                    length = slot(header.type.length_offset)
                    source.add(f"out.append({slot(varbit.offset)}.to_bytes({length} >> 3, 'big'))")
                if after:
                    source.add(f"out.append({pack_units(source, after, slot)})")
        source.add(f"out.append(f[{slots.PAYLOAD}])")
        source.add("return b''.join(out)")
