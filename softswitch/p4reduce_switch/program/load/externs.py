"""Externs, which statements and tables refer to by name (counters, registers, ...), digests and field lists."""

from __future__ import annotations

from dataclasses import dataclass, field

from p4reduce_switch.program.errors import UnsupportedConstructError
from p4reduce_switch.program.ir.externs import (
    ActionProfile,
    Calculation,
    Counter,
    DirectMeter,
    Meter,
    MeterUnit,
    Register,
)
from p4reduce_switch.program.ir.program import Digest, Slot
from p4reduce_switch.program.load.layout import VALID, Layout, put, put_id
from p4reduce_switch.program.load.limits import MAX_BITS, MAX_STATE_BYTES
from p4reduce_switch.program.load.reader import Place

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
    """Return all externs except calculations and action profiles, which `checksums.py` adds."""
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
