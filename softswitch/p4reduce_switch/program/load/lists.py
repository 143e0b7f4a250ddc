"""Digests and field lists."""

from __future__ import annotations

from p4reduce_switch.program.errors import UnsupportedConstructError
from p4reduce_switch.program.ir.program import Digest, Slot
from p4reduce_switch.program.load.layout import VALID, Layout, put_id
from p4reduce_switch.program.load.reader import Place


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
