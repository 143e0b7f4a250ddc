"""Assigns slots to the headers, stacks and unions of a program, and finds those of the standard metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from msgspec.structs import replace

from p4reduce_switch.program.errors import InvalidProgramError, UnsupportedConstructError
from p4reduce_switch.program.ir.places import FieldRef, FieldType, Header, HeaderStack, HeaderType, Union, UnionStack
from p4reduce_switch.program.ir.program import StandardMetadata, TargetOptions
from p4reduce_switch.program.load.reader import MAX_BITS, MAX_HEADER_BITS, MAX_SLOTS, Place, shorten
from p4reduce_switch.program.packet import FIRST_FREE

VALID = "$valid$"

T = TypeVar("T")


class Layout:
    """The headers, stacks and unions of a program by name."""

    def __init__(self, config: Place, options: TargetOptions) -> None:
        self.target = options
        self.size = FIRST_FREE
        self.headers: dict[str, Header] = {}
        self.unions: dict[str, Union] = {}
        self.stacks: dict[str, HeaderStack | UnionStack] = {}
        types: dict[str, HeaderType] = {}
        for item in config["header_types"].elements():
            put(types, item["name"], _header_type(item))
        declared: dict[int, tuple[Place, str, HeaderType, bool]] = {}
        unions = {item["name"].text() for item in config.rows("header_union_types")}
        for item in config["headers"].elements():
            if item["header_type"].text() in unions:  # BMv2 crashes on it
                raise UnsupportedConstructError(f"{item['name'].name()}, a variable of a header union's type")
            kind = find(types, item["header_type"], "header type")
            fresh = (item["name"], item["name"].text(), kind, item["metadata"].boolean())
            put_id(declared, item["id"], fresh)
        self._declared = declared
        self._placed: dict[int, Header] = {}
        self._place_stacks(config)
        self._place_unions(config)
        for id in declared:
            if id not in self._placed:
                self._place(id)
        for id, (place, _, _, _) in declared.items():
            put(self.headers, place, self._placed[id])
        self.aliases: dict[str, tuple[str, str]] = {}
        for item in config.rows("field_aliases"):
            alias, target = item.pair()
            header, field = target.pair()
            self.aliases[alias.text()] = (header.text(), field.text())

    # ---- assignment

    def _take(self, slots: int, place: Place) -> int:
        base = self.size
        self.size += slots
        if self.size > MAX_SLOTS:
            place.fail(f"the headers have more than {MAX_SLOTS} fields in all")
        return base

    def _place(self, id: int) -> Header:
        place, name, kind, metadata = self._declared[id]
        header = Header(name, kind, metadata, self._take(kind.slots, place))
        self._placed[id] = header
        return header

    def _take_ids(self, place: Place) -> list[int]:
        """Ids of headers without slots so far; each can be in one stack or union only."""
        ids: list[int] = []
        for item in place.elements():
            id = item.integer()
            if id not in self._declared or id in self._placed or id in ids:
                item.fail(f"there is no header {id}, or it is in another stack or union too")
            ids.append(id)
        return ids

    def _place_stacks(self, config: Place) -> None:
        for item in config.rows("header_stacks"):
            ids = self._take_ids(item["header_ids"])
            if not ids:
                item.fail("a stack without elements")
            next_slot, base = self._take(1, item), self.size
            elements = tuple(self._place(id) for id in ids)
            if any(header.type is not elements[0].type for header in elements):
                item.fail("a stack of different header types")
            put(self.stacks, item["name"], HeaderStack(item["name"].text(), elements, base, next_slot))

    def _place_unions(self, config: Place) -> None:
        types: dict[str, tuple[str, ...]] = {}
        for item in config.rows("header_union_types"):
            names = tuple(member.pair()[0].text() for member in item["headers"].elements())
            put(types, item["name"], names)
        declared: dict[int, tuple[Place, tuple[str, ...]]] = {}
        for item in config.rows("header_unions"):
            put_id(declared, item["id"], (item, find(types, item["union_type"], "union type")))
        placed: dict[int, Union] = {}
        for item in config.rows("header_union_stacks"):
            ids = [id.integer() for id in item["header_union_ids"].elements()]
            if not ids or len(set(ids)) < len(ids) or any(id not in declared or id in placed for id in ids):
                item.fail("a stack without elements, or of unions that are not there or in another stack too")
            next_slot, base = self._take(1, item), self.size
            elements = []
            for id in ids:
                placed[id] = self._place_union(*declared[id])
                elements.append(placed[id])
            if any(not union.same_as(elements[0]) for union in elements):
                item.fail("a stack of different unions")
            put(self.stacks, item["name"], UnionStack(item["name"].text(), tuple(elements), base, next_slot))
        for id, (item, names) in declared.items():
            union = placed.get(id) or self._place_union(item, names)
            put(self.unions, item["name"], union)

    def _place_union(self, item: Place, names: tuple[str, ...]) -> Union:
        ids = self._take_ids(item["header_ids"])
        if len(ids) != len(names) or not ids:
            item.fail("the union has not the members of its type")
        base = self.size
        headers = [self._place(id) for id in ids]
        for position, id in enumerate(ids):
            siblings = tuple(h.valid for other, h in enumerate(headers) if other != position)
            headers[position] = self._placed[id] = replace(headers[position], siblings=siblings)
        return Union(item["name"].text(), names, tuple(headers), base)

    # ---- look-ups

    def header(self, place: Place) -> Header:
        """Return the header instance that a string names."""
        return find(self.headers, place, "header")

    def stack(self, place: Place) -> HeaderStack | UnionStack:
        """Return the header stack, or stack of unions, that a string names."""
        return find(self.stacks, place, "header stack")

    def header_stack(self, place: Place) -> HeaderStack:
        """Return the stack of headers that a string names."""
        stack = self.stack(place)
        if not isinstance(stack, HeaderStack):
            place.fail(f"{place.name()} is not a stack of headers")
        return stack

    def union_stack(self, place: Place) -> UnionStack:
        """Return the stack of unions that a string names."""
        stack = self.stack(place)
        if not isinstance(stack, UnionStack):
            place.fail(f"{place.name()} is not a stack of unions")
        return stack

    def field(self, place: Place) -> FieldRef:
        """Return the field that a pair of strings names."""
        header, field = place.pair()
        found = self.header(header)
        return FieldRef(found, field_of(found.type, field))

    def target_field(self, name: str) -> FieldRef | None:
        """Return the standard metadata field `name` (after aliases); None if the program has none."""
        default = name.split(".", 1)
        header_name, field_name = self.aliases.get(name, (default[0], default[1]))
        header = self.headers.get(header_name)
        if header is None:
            return None
        offset = next((field.offset for field in header.type.fields if field.name == field_name), None)
        return None if offset is None else FieldRef(header, offset)


def field_of(kind: HeaderType, place: Place) -> int:
    """Return the offset of the field of a header type that a string names."""
    name = place.text()
    for field in kind.fields:
        if field.name == name:
            return field.offset
    return place.fail(f"header type {shorten(kind.name)} has no field {shorten(name)}")


def check_bytes(kind: HeaderType) -> None:
    """Reject a header, to be parsed or deparsed, that is not whole bytes before and after its varbit field."""
    bits = 0
    for field in kind.fields:
        bits += field.width
        if field.varbit and bits % 8:
            break
    if bits % 8:
        raise UnsupportedConstructError(f"header type {shorten(kind.name)}: it does not end on a byte boundary")


def find(known: Mapping[str, T], place: Place, what: str) -> T:
    """Return the declaration that a string names."""
    name = place.text()
    if name not in known:
        place.fail(f"there is no {what} {shorten(name)}")
    return known[name]


def put(known: dict[str, T], place: Place, declaration: T) -> None:
    """Add a declaration under the name at `place`; the name must be unique."""
    name = place.text()
    if name in known:
        place.fail(f"the name {shorten(name)} is given twice")
    known[name] = declaration


def put_id(known: dict[int, T], place: Place, declaration: T) -> None:
    """Add a declaration under an id, which must be unique."""
    id = place.integer()
    if id in known:
        place.fail(f"the id {id} is given twice")
    known[id] = declaration


def _header_type(item: Place) -> HeaderType:
    fields: list[FieldType] = []
    bits = 0
    for offset, entry in enumerate(item["fields"].elements()):
        parts = entry.elements()
        if not 2 <= len(parts) <= 4:
            entry.fail(f"expected 2 to 4 elements, found {len(parts)}")
        name = parts[0].text()
        varbit = parts[1].value == "*"
        signed = len(parts) > 2 and parts[2].truth()
        if len(parts) > 3 and parts[3].truth():
            raise UnsupportedConstructError(f"saturating field {item['name'].name()}.{shorten(name)}")
        width = 0 if varbit else parts[1].integer(int(signed), MAX_BITS)
        bits += width
        fields.append(FieldType(name, offset, width, signed and not varbit, varbit))
    if bits > MAX_HEADER_BITS:
        item.fail(f"the header has more than {MAX_HEADER_BITS} bits")
    varbits = [field for field in fields if field.varbit]
    if len(varbits) > 1:
        raise UnsupportedConstructError(f"header type {item['name'].name()} with more than one varbit field")
    longest = item.get("max_length")
    max_bytes = 0 if longest is None else longest.integer(0, MAX_HEADER_BITS)
    return HeaderType(item["name"].text(), tuple(fields), max_bytes, bits, varbits[0] if varbits else None)


# simple_switch's names; field_aliases map them to the program's fields. Their widths are the program's: P4_14 programs
# define the intrinsic and queueing metadata themselves.
_REQUIRED = {
    "egress_spec": "standard_metadata.egress_spec",
    "egress_port": "standard_metadata.egress_port",
    "instance_type": "standard_metadata.instance_type",
    "ingress_port": "standard_metadata.ingress_port",
    "packet_length": "standard_metadata.packet_length",
}
_OPTIONAL = {
    "mcast_grp": "intrinsic_metadata.mcast_grp",
    "egress_rid": "intrinsic_metadata.egress_rid",
    "parser_error": "standard_metadata.parser_error",
    "checksum_error": "standard_metadata.checksum_error",
    "ingress_time": "intrinsic_metadata.ingress_global_timestamp",
    "egress_time": "intrinsic_metadata.egress_global_timestamp",
    "enqueue_time": "queueing_metadata.enq_timestamp",
    "enqueue_depth": "queueing_metadata.enq_qdepth",
    "dequeue_delay": "queueing_metadata.deq_timedelta",
    "dequeue_depth": "queueing_metadata.deq_qdepth",
    "queue": "queueing_metadata.qid",
    "priority": "intrinsic_metadata.priority",
}


def standard_metadata(layout: Layout) -> StandardMetadata:
    """Return the slots; InvalidProgramError if a field that simple_switch requires is missing, or one is signed."""
    required: dict[str, int] = {}
    for attribute, name in _REQUIRED.items():
        field = layout.target_field(name)
        if field is None:
            raise InvalidProgramError(f"the program has no {name}: it is not a v1model program")
        required[attribute] = _metadata_slot(field, name)
    optional: dict[str, int | None] = {}
    for attribute, name in _OPTIONAL.items():
        field = layout.target_field(name)
        optional[attribute] = None if field is None else _metadata_slot(field, name)
    return StandardMetadata(**required, **optional)  # type: ignore[arg-type]


def _metadata_slot(field: FieldRef, name: str) -> int:
    kind, slot = field.type, field.slot
    assert slot is not None
    if kind.varbit or kind.signed:
        raise InvalidProgramError(f"{name} is not an unsigned field: it is not a v1model program")
    return slot
