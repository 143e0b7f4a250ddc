"""Calculations (hashes over fields), checksums, and action selectors."""

from __future__ import annotations

from collections.abc import Mapping

from p4reduce_switch.program.errors import UnsupportedConstructError
from p4reduce_switch.program.ir import build
from p4reduce_switch.program.ir.expressions import Truth
from p4reduce_switch.program.ir.externs import ActionProfile, Algorithm, Calculation, Piece
from p4reduce_switch.program.ir.places import FieldRef, Header
from p4reduce_switch.program.ir.program import Checksum
from p4reduce_switch.program.load.expressions import Expressions
from p4reduce_switch.program.load.layout import Layout, field_of, find, put
from p4reduce_switch.program.load.limits import MAX_BITS, MAX_TABLE_SIZE
from p4reduce_switch.program.load.reader import Place

# The custom CRCs have BMv2's default parameters, which are those of the standard ones.
ALGORITHMS = {
    "crc16": Algorithm.CRC16,
    "crc16_custom": Algorithm.CRC16,
    "crcCCITT": Algorithm.CRC_CCITT,
    "crc32": Algorithm.CRC32,
    "crc32_custom": Algorithm.CRC32,
    "csum16": Algorithm.CSUM16,
    "cksum16": Algorithm.CSUM16,
    "xor16": Algorithm.XOR16,
    "xor32": Algorithm.XOR32,
    "identity": Algorithm.IDENTITY,
    "random": Algorithm.RANDOM,
}


def load_calculations(config: Place, layout: Layout) -> dict[str, Calculation]:
    """Return all calculations by name."""
    found: dict[str, Calculation] = {}
    for item in config["calculations"].elements():
        put(found, item["name"], _calculation(item, item["name"], layout))
    return found


def _calculation(item: Place, name: Place, layout: Layout) -> Calculation:
    algorithm = ALGORITHMS.get(item["algo"].text())
    if algorithm is None:
        raise UnsupportedConstructError(f"hash algorithm {item['algo'].name()} ({name.name()})")
    pieces: list[Piece] = []
    payload = False
    for part in item["input"].elements():
        if part["type"].text() == "payload":
            payload = True
        else:
            pieces += _pieces(part, layout)
    return Calculation(name.text(), algorithm, tuple(pieces), payload)


def load_action_profiles(config: Place, layout: Layout) -> dict[str, ActionProfile]:
    """Return all action profiles and selectors by name; the JSON lists each in the first pipeline that uses it."""
    found: dict[str, ActionProfile] = {}
    for pipeline in config["pipelines"].elements():
        for item in pipeline.rows("action_profiles"):
            name, declared = item["name"], item.get("selector")
            selector = None if declared is None else _calculation(declared, name, layout)
            put(found, name, ActionProfile(name.text(), item["max_size"].integer(0, MAX_TABLE_SIZE), selector))
    return found


def _pieces(part: Place, layout: Layout) -> list[Piece]:
    match part["type"].text():
        case "field":
            header_place, name = part["value"].pair()
            header = layout.header(header_place)
            return [_piece(header, field_of(header.type, name))]
        case "header":
            header = layout.header(part["value"])
            return [_piece(header, field.offset) for field in header.type.fields]
        case "hexstr":
            bits = part["bitwidth"].integer(0, MAX_BITS)
            return [Piece(build.cut(build.constant(part["value"].hexadecimal()), bits, False), bits, None)]
    raise UnsupportedConstructError(f"calculation over a {part['type'].name()}")


def _piece(header: Header, offset: int) -> Piece:
    owner = None if header.metadata else header
    kind = header.type.fields[offset]
    value = build.field_value(FieldRef(header, offset))
    if kind.varbit:
        return Piece(value, None, owner, header.base + header.type.length_offset)
    return Piece(build.cut(value, kind.width, False), kind.width, owner)


def load_checksums(
    config: Place, layout: Layout, expressions: Expressions, calculations: Mapping[str, Calculation]
) -> tuple[Checksum, ...]:
    """Return all checksums in order."""
    found = []
    for item in config["checksums"].elements():
        verify, update = item.flag("verify", True), item.flag("update", True)
        if not verify and not update:
            continue
        name = item["name"]
        if item["type"].text() != "generic":
            raise UnsupportedConstructError(f"checksum of type {item['type'].name()} ({name.name()})")
        condition = item.get("if_cond")
        target = layout.field(item["target"])
        if target.type.varbit:
            name.fail(f"checksum {name.name()} is stored in a varbit field")
        found.append(
            Checksum(
                name.text(),
                target,
                find(calculations, item["calculation"], "calculation"),
                Truth(True) if condition is None else expressions.condition(condition),
                verify,
                update,
            )
        )
    return tuple(found)
