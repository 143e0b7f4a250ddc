"""Headers as rows of byte-aligned units: extraction and deparsing follow the same plan."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from p4reduce_switch.program.ir.places import FieldType, HeaderType
from p4reduce_switch.program.python.expressions import Start, literal, slot
from p4reduce_switch.program.python.source import Source

STRUCT_CODES = {8: "B", 16: "H", 32: "I", 64: "Q"}
TERMS_IN_A_LINE = 32
"""Terms of a sum that are written in place: to Python each operator is a level of nesting."""


@dataclass(frozen=True)
class Unit:
    """Neighbouring fields that together fill whole bytes."""

    fields: tuple[FieldType, ...]
    width: int

    @property
    def code(self) -> str:
        """The struct format of the unit: a number, or a string of bytes."""
        return STRUCT_CODES.get(self.width, f"{self.width // 8}s")


def units(fields: tuple[FieldType, ...]) -> list[Unit]:
    """Cut fields into the smallest units that start and end on a byte boundary."""
    result: list[Unit] = []
    pending: list[FieldType] = []
    width = 0
    for item in fields:
        pending.append(item)
        width += item.width
        if width % 8 == 0:
            result.append(Unit(tuple(pending), width))
            pending, width = [], 0
    assert not pending, "load/layout.py refuses these"
    return result


def parts(kind: HeaderType) -> tuple[list[Unit], FieldType | None, list[Unit]]:
    """Units before the varbit field, the varbit field, units after it."""
    varbit = kind.varbit
    if varbit is None:
        return units(kind.fields), None, []
    return units(kind.fields[: varbit.offset]), varbit, units(kind.fields[varbit.offset + 1 :])


def format_of(group: list[Unit]) -> str:
    """The struct format of units in a row."""
    return ">" + "".join(unit.code for unit in group)


def joined(source: Source, terms: list[str], operator: str) -> str:
    """Terms joined by an operator; a long row is written to a variable first."""
    if len(terms) <= TERMS_IN_A_LINE:
        return f" {operator} ".join(terms)
    name = source.fresh("v")
    for first in range(0, len(terms), TERMS_IN_A_LINE):
        row = terms[first : first + TERMS_IN_A_LINE]
        source.add(f"{name} = " + f" {operator} ".join([name, *row] if first else row))
    return name


def unit_value(source: Source, unit: Unit, start: Start) -> str:
    """Source of the number that the unit's fields make together."""
    terms, position = [], unit.width
    for item in unit.fields:
        position -= item.width
        code = slot(start, item.offset)
        if item.signed:
            code = f"({code} & {literal((1 << item.width) - 1)})"
        terms.append(f"({code} << {position})" if position else code)
    return joined(source, terms, "|")


def pack_units(source: Source, group: list[Unit], start: Start) -> str:
    """Source of the bytes of a row of units."""
    values = [unit_value(source, unit, start) for unit in group]
    if len(group) == 1:
        return f"({values[0]}).to_bytes({group[0].width // 8}, 'big')"
    arguments = [
        value if unit.width in STRUCT_CODES else f"({value}).to_bytes({unit.width // 8}, 'big')"
        for value, unit in zip(values, group, strict=True)
    ]
    packer = source.bind("pack", struct.Struct(format_of(group)).pack)
    return f"{packer}({', '.join(arguments)})"
