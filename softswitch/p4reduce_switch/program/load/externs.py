"""Externs, which statements and tables refer to by name (counters, registers, hashes, ...), checksums, and digests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from p4reduce_switch.program.errors import UnsupportedConstructError
from p4reduce_switch.program.ir import build
from p4reduce_switch.program.ir.expressions import Truth
from p4reduce_switch.program.ir.externs import (
    ActionProfile,
    Algorithm,
    Calculation,
    Counter,
    DirectMeter,
    Meter,
    MeterUnit,
    Piece,
    Register,
)
from p4reduce_switch.program.ir.places import FieldRef, Header
from p4reduce_switch.program.ir.program import Checksum, Digest, Slot
from p4reduce_switch.program.load.expressions import Expressions
from p4reduce_switch.program.load.layout import VALID, Layout, field_of, find, put, put_id
from p4reduce_switch.program.load.reader import MAX_BITS, MAX_STATE_BYTES, MAX_TABLE_SIZE, Place

COUNTER_CELL_BYTES, METER_CELL_BYTES, LEAST_CELL_BYTES = 16, 64, 8


@dataclass
class Externs:
    """All externs of a program by name. Direct meters belong to a table; direct counters too, and have no name here."""

    counters: dict[str, Counter] = field(default_factory=dict)
    registers: dict[str, Register] = field(default_factory=dict)
    meters: dict[str, Meter] = field(default_factory=dict)
    direct_meters: dict[str, DirectMeter] = field(default_factory=dict)
    calculations: dict[str, Calculation] = field(default_factory=dict)
    """Calculations of hashes and checksums; action selectors have their own."""
    action_profiles: dict[str, ActionProfile] = field(default_factory=dict)


def load_externs(config: Place, layout: Layout) -> Externs:
    """Return all externs except calculations and action profiles."""
    found = Externs()
    budget = _MemoryBudget()
    for item in config["counter_arrays"].elements():
        if not item.flag("is_direct"):
            size = budget.take(item["size"], COUNTER_CELL_BYTES)
            put(found.counters, item["name"], Counter(item["name"].text(), size))
    for item in config["register_arrays"].elements():
        bits = item["bitwidth"].integer(1, MAX_BITS)
        size = budget.take(item["size"], max(LEAST_CELL_BYTES, (bits + 7) // 8))
        put(found.registers, item["name"], Register(item["name"].text(), size, bits))
    for item in config["meter_arrays"].elements():
        rates = item.get("rate_count")
        if rates is not None and rates.integer() != 2:
            raise UnsupportedConstructError(f"meter {item['name'].name()} with {rates.integer()} rates")
        unit = _unit(item["type"])
        if item.flag("is_direct"):
            result = layout.field(item["result_target"])
            put(found.direct_meters, item["name"], DirectMeter(item["name"].text(), unit, result))
        else:
            size = budget.take(item["size"], METER_CELL_BYTES)
            put(found.meters, item["name"], Meter(item["name"].text(), size, unit))
    return found


def _unit(place: Place) -> MeterUnit:
    if place.text() not in tuple(MeterUnit):
        place.fail("a meter counts packets or bytes")
    return MeterUnit(place.text())


class _MemoryBudget:
    """The rest of the memory that state may use."""

    def __init__(self) -> None:
        self._left = MAX_STATE_BYTES

    def take(self, size: Place, cell_bytes: int) -> int:
        """Return the number of cells; InvalidProgramError if they do not fit."""
        cells = size.integer()
        self._left -= cells * cell_bytes
        if self._left < 0:
            size.fail(f"registers, counters and meters take more than {MAX_STATE_BYTES} bytes")
        return cells


def load_digests(config: Place, layout: Layout) -> dict[int, Digest]:
    """Return all learn lists, by the id that the program sends."""
    found: dict[int, Digest] = {}
    for item in config.rows("learn_lists"):
        put_id(found, item["id"], Digest(item["name"].text(), _slots(item, layout, "digest")))
    return found


def load_field_lists(config: Place, layout: Layout) -> dict[int, tuple[Slot, ...]]:
    """Return all field lists of clones, resubmits and recirculations, by id."""
    found: dict[int, tuple[Slot, ...]] = {}
    for item in config.rows("field_lists"):
        put_id(found, item["id"], _slots(item, layout, "field list"))
    return found


def _slots(item: Place, layout: Layout, what: str) -> tuple[Slot, ...]:
    elements = item["elements"].elements()
    for element in elements:
        if element["type"].text() != "field":
            raise UnsupportedConstructError(f"{element['type'].name()} in {what} {item['name'].name()}")
    return tuple(_slot(element["value"], layout) for element in elements)


def _slot(place: Place, layout: Layout) -> Slot:
    header_place, name = place.pair()
    header = layout.header(header_place)
    if name.text() == VALID:
        return Slot(header.valid, 1)
    field = layout.field(place)
    slot = field.slot
    assert slot is not None
    if field.type.varbit:
        raise UnsupportedConstructError(f"varbit field {header_place.name()}.{name.name()} in a digest or field list")
    return Slot(slot, field.type.width)


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
