"""Where everything lives in a packet's state: one flat list of integers.

The first slots hold what the target itself keeps about a packet; then comes each header: its fields
in order, a bit length for its varbit field if it has one, and its validity (0 or 1) last. The
elements of a stack (and the members of a union) are laid out side by side, so that element i of a
stack is at `base + i * stride` and copying a header, a stack or a union is one slice copy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .errors import InvalidProgram, UnsupportedConstruct

Json = dict[str, Any]

# Slots of the target. The payload is `bytes`; all others are integers.
PAYLOAD = 0  # what the parser left of the frame
LENGTH = 1  # packet length, kept up to date by setValid/setInvalid
INGRESS_LENGTH = 2  # bytes at the start of this ingress pass: what counters and meters count
CLONE = 3  # clone session + 1, or 0
CLONE_FIELDS = 4  # field list of the clone
DIGEST = 5  # learn list, or 0
RESUBMIT = 6  # field list of the resubmit, or 0
RECIRCULATE = 7  # field list of the recirculate, or 0
EXIT = 8  # 1 after `exit`
TRUNCATE = 9  # bytes to send at most
PARSER_ERROR = 10
CHECKSUM_ERROR = 11
FIRST_FREE = 12

NO_TRUNCATION = 1 << 32


@dataclass(frozen=True)
class FieldType:
    """One field of a header type; `width` in bits is 0 for varbit."""

    name: str
    offset: int
    width: int
    signed: bool
    varbit: bool


@dataclass(frozen=True)
class HeaderType:
    """A header type; `slots` is how many slots an instance takes."""

    name: str
    fields: tuple[FieldType, ...]
    max_bytes: int
    length_expression: Json | None

    @property
    def varbit(self) -> FieldType | None:
        """The varbit field, if there is one."""
        return next((f for f in self.fields if f.varbit), None)

    @property
    def length_offset(self) -> int:
        """Offset of the slot that holds the varbit field's length in bits."""
        return len(self.fields)

    @property
    def valid_offset(self) -> int:
        """Offset of the validity slot, the last one."""
        return len(self.fields) + (self.varbit is not None)

    @property
    def slots(self) -> int:
        return self.valid_offset + 1

    @property
    def fixed_bits(self) -> int:
        """Width in bits without the varbit field."""
        return sum(f.width for f in self.fields)

    def field(self, name: str) -> FieldType:
        for candidate in self.fields:
            if candidate.name == name:
                return candidate
        raise InvalidProgram(f"header type {self.name} has no field {name}")


@dataclass
class Header:
    """A header instance; `rivals` are the validity slots of the other members of its union."""

    name: str
    id: int
    type: HeaderType
    metadata: bool
    base: int = -1
    rivals: tuple[int, ...] = ()

    @property
    def valid(self) -> int:
        return self.base + self.type.valid_offset


@dataclass
class Union:
    """A header union: its members lie side by side."""

    name: str
    members: dict[str, Header]
    base: int = -1

    @property
    def slots(self) -> int:
        return sum(h.type.slots for h in self.members.values())


@dataclass
class Stack:
    """A stack of headers, or of unions (then `union` describes the first element)."""

    name: str
    size: int
    stride: int
    base: int
    next: int
    type: HeaderType | None = None
    union: Union | None = None
    valid_slots: tuple[int, ...] = field(default_factory=tuple)


class Layout:
    """Slots of all headers, stacks and unions of a program."""

    def __init__(self, config: Json) -> None:
        self.size = FIRST_FREE
        self.types = {t["name"]: _header_type(t) for t in config["header_types"]}
        self.headers: dict[str, Header] = {}
        by_id: dict[int, Header] = {}
        for item in config["headers"]:
            header = Header(item["name"], item["id"], self.types[item["header_type"]], bool(item["metadata"]))
            self.headers[header.name] = by_id[header.id] = header
        self.unions: dict[str, Union] = {}
        self.stacks: dict[str, Stack] = {}
        unions_by_id = self._read_unions(config, by_id)
        self._place_stacks(config, by_id)
        self._place_union_stacks(config, unions_by_id)
        for union in self.unions.values():
            if union.base < 0:
                self._place_union(union)
        for header in self.headers.values():
            if header.base < 0:
                self._place(header)
        self.aliases = {name: (target[0], target[1]) for name, target in config.get("field_aliases", [])}
        self.used: set[int] = set()

    def _take(self, slots: int) -> int:
        base = self.size
        self.size += slots
        return base

    def _place(self, header: Header) -> None:
        header.base = self._take(header.type.slots)

    def _place_union(self, union: Union) -> None:
        union.base = self.size
        for header in union.members.values():
            self._place(header)
        for header in union.members.values():
            header.rivals = tuple(h.valid for h in union.members.values() if h is not header)

    def _read_unions(self, config: Json, by_id: dict[int, Header]) -> dict[int, Union]:
        types = {
            t["name"]: [member for member, _ in t["headers"]] for t in config.get("header_union_types", [])
        }
        unions: dict[int, Union] = {}
        for item in config.get("header_unions", []):
            members = dict(
                zip(types[item["union_type"]], (by_id[i] for i in item["header_ids"]), strict=True)
            )
            unions[item["id"]] = self.unions[item["name"]] = Union(item["name"], members)
        return unions

    def _place_stacks(self, config: Json, by_id: dict[int, Header]) -> None:
        for item in config.get("header_stacks", []):
            headers = [by_id[i] for i in item["header_ids"]]
            next_slot, base = self._take(1), self.size
            for header in headers:
                self._place(header)
            kind = headers[0].type
            self.stacks[item["name"]] = Stack(
                item["name"],
                len(headers),
                kind.slots,
                base,
                next_slot,
                kind,
                None,
                tuple(h.valid for h in headers),
            )

    def _place_union_stacks(self, config: Json, by_id: dict[int, Union]) -> None:
        for item in config.get("header_union_stacks", []):
            unions = [by_id[i] for i in item["header_union_ids"]]
            next_slot, base = self._take(1), self.size
            for union in unions:
                self._place_union(union)
            valid = tuple(h.valid for u in unions for h in u.members.values())
            self.stacks[item["name"]] = Stack(
                item["name"], len(unions), unions[0].slots, base, next_slot, None, unions[0], valid
            )

    def header(self, name: str) -> Header:
        """The header instance called `name`."""
        try:
            return self.headers[name]
        except KeyError:
            raise InvalidProgram(f"there is no header {name}") from None

    def find(self, name: str) -> tuple[int, FieldType] | None:
        """Slot and type of the target's own field called `name` (after aliases), None if undeclared."""
        header_name, field_name = self.aliases.get(name, tuple(name.split(".", 1)))
        header = self.headers.get(header_name)
        if header is None or all(f.name != field_name for f in header.type.fields):
            return None
        kind = header.type.field(field_name)
        return header.base + kind.offset, kind

    def metadata_ranges(self) -> list[tuple[int, int]]:
        """Slot ranges [start, end) of all metadata instances."""
        return [(h.base, h.base + h.type.slots) for h in self.headers.values() if h.metadata]


def _header_type(item: Json) -> HeaderType:
    fields = []
    for offset, (name, width, *rest) in enumerate(item["fields"]):
        varbit = width == "*"
        if len(rest) > 1 and rest[1]:
            raise UnsupportedConstruct(f"saturating field {item['name']}.{name}")
        fields.append(FieldType(name, offset, 0 if varbit else int(width), bool(rest and rest[0]), varbit))
    if sum(f.varbit for f in fields) > 1:
        raise UnsupportedConstruct(f"header type {item['name']} with more than one varbit field")
    return HeaderType(item["name"], tuple(fields), int(item.get("max_length") or 0), item.get("length_exp"))
