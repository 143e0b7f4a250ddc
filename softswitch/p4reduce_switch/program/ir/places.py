"""Storage: header types, headers, unions and stacks, and references to them.

Storage is numbered in slots. A header has a slot for each field in order, one for the bit length of its
varbit field if it has one, and its validity (0 or 1) last. Elements of a stack are contiguous, and so are
members of a union: element i of a stack starts at `base + i * stride`. A back-end may use the numbers as
they are, or map them to addresses.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from p4reduce_switch.program.ir.intervals import Data, Node


class FieldType(Struct, frozen=True):
    """One field of a header type; `width` in bits is 0 for varbit."""

    name: str
    offset: int
    width: int
    signed: bool
    varbit: bool


class HeaderType(Node, frozen=True):
    """A header type; `max_bytes` limits one with a varbit field, 0 for no limit."""

    name: str
    fields: tuple[FieldType, ...]
    max_bytes: int
    fixed_bits: int
    """Width in bits without the varbit field."""
    varbit: FieldType | None

    @property
    def varbit_bytes(self) -> int:
        """The longest varbit field; not above 0 without a limit."""
        return self.max_bytes - self.fixed_bits // 8

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
        """The number of slots of a header of this type."""
        return self.valid_offset + 1

    def same_as(self, other: HeaderType) -> bool:
        """Return whether both types have the same fields."""
        return self is other or self.fields == other.fields


class Header(Node, frozen=True):
    """A header instance, or an instance of metadata; `siblings` are the other members' validity slots in its union."""

    name: str
    type: HeaderType
    metadata: bool
    base: int
    siblings: tuple[int, ...] = ()

    @property
    def valid(self) -> int:
        """The slot of its validity."""
        return self.base + self.type.valid_offset


class Union(Node, frozen=True):
    """A header union: its members are contiguous, at most one of them is valid."""

    name: str
    member_names: tuple[str, ...]
    members: tuple[Header, ...]
    base: int

    @property
    def slots(self) -> int:
        """The number of its slots."""
        return sum(member.type.slots for member in self.members)

    def same_as(self, other: Union) -> bool:
        """Return whether both have the same members."""
        return len(self.members) == len(other.members) and all(
            a.type.same_as(b.type) for a, b in zip(self.members, other.members, strict=True)
        )


class HeaderStack(Node, frozen=True):
    """A stack of headers; the slot `next` counts the elements that were pushed or extracted."""

    name: str
    elements: tuple[Header, ...]
    base: int
    next: int

    @property
    def size(self) -> int:
        """The number of its elements."""
        return len(self.elements)

    @property
    def type(self) -> HeaderType:
        """The type of its elements."""
        return self.elements[0].type

    @property
    def stride(self) -> int:
        """Slots from one element to the next."""
        return self.type.slots


class UnionStack(Node, frozen=True):
    """A stack of header unions."""

    name: str
    elements: tuple[Union, ...]
    base: int
    next: int

    @property
    def size(self) -> int:
        """The number of its elements."""
        return len(self.elements)

    @property
    def stride(self) -> int:
        """Slots from one element to the next."""
        return self.elements[0].slots


class End(Enum):
    """An element of a stack relative to its `next` counter."""

    LAST = "last"
    """The last one extracted (`stack.last`); only in a parser, after a RequireElement."""
    NEXT = "next"
    """`stack.next`; only as the target of an Extract, which checks the bounds."""


class HeaderElement(Node, frozen=True):
    """An element whose index is computed at run time; an index out of bounds is an ExecutionError."""

    stack: HeaderStack
    index: Data | End

    @property
    def type(self) -> HeaderType:
        """The type of the element."""
        return self.stack.type


class UnionElement(Node, frozen=True):
    """A union in a stack, whose index is computed at run time."""

    stack: UnionStack
    index: Data | End


class Member(Node, frozen=True):
    """A member of a union whose index is computed at run time."""

    union: UnionElement
    index: int

    @property
    def type(self) -> HeaderType:
        """The type of the member."""
        return self.union.stack.elements[0].members[self.index].type


Stack = HeaderStack | UnionStack
HeaderRef = Header | HeaderElement | Member
UnionRef = Union | UnionElement


class FieldRef(Node, frozen=True):
    """A field of a header."""

    header: HeaderRef
    offset: int

    @property
    def type(self) -> FieldType:
        """Width and sign of the field."""
        return self.header.type.fields[self.offset]

    @property
    def slot(self) -> int | None:
        """The slot; None if an index is computed at run time."""
        return self.header.base + self.offset if isinstance(self.header, Header) else None


def union_of(ref: UnionRef) -> Union:
    """The union, or the first element of the stack that it is in."""
    return ref if isinstance(ref, Union) else ref.stack.elements[0]


def member(ref: UnionRef, index: int) -> HeaderRef:
    """Member number `index` of a union."""
    return ref.members[index] if isinstance(ref, Union) else Member(ref, index)
