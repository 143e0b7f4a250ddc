"""Cells of headers and unions, also of stack elements with a run-time index."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from p4reduce_switch.program.ir.intervals import Data
from p4reduce_switch.program.ir.places import (
    End,
    FieldRef,
    Header,
    HeaderElement,
    HeaderRef,
    HeaderType,
    Stack,
    Union,
    UnionRef,
)
from p4reduce_switch.program.llvm.emitter import Emitter, Value
from p4reduce_switch.program.llvm.packet_state import Cell, PacketState


@dataclass(frozen=True, slots=True)
class HeaderCells:
    """A header in emitted code: `slot(offset)` is a slot's cell, `siblings` the other members of its union."""

    type: HeaderType
    slot: Callable[[int], Cell]
    siblings: Callable[[], list[Cell]]

    def slots(self) -> list[Cell]:
        """Return all cells, the validity last."""
        return [self.slot(offset) for offset in range(self.type.slots)]


class References:
    """Resolves headers; `index` emits the check of an index."""

    def __init__(self, emitter: Emitter, packet: PacketState, index: Callable[[Data, int], Value]) -> None:
        self.e = emitter
        self.packet = packet
        self._index = index

    def header(self, ref: HeaderRef) -> HeaderCells:
        """Resolve a header; its index is computed here, once."""
        if isinstance(ref, Header):
            return self._fixed(ref)
        if isinstance(ref, HeaderElement):
            start, first = self._element(ref.stack, ref.index), ref.stack.base
            return self._chosen(ref.type, start, first, first, [])
        union = ref.union.stack.elements[0]
        start = self._element(ref.union.stack, ref.union.index)
        return self._member(union, ref.index, start)

    def field(self, ref: FieldRef) -> Cell:
        """Return the cell of a field."""
        return self.header(ref.header).slot(ref.offset)

    def valid(self, ref: HeaderRef) -> Cell:
        """Return the cell of a header's validity."""
        return self.header(ref).slot(ref.type.valid_offset)

    def members(self, ref: UnionRef) -> list[HeaderCells]:
        """Return the members of a union."""
        if isinstance(ref, Union):
            return [self._fixed(member) for member in ref.members]
        start, union = self._element(ref.stack, ref.index), ref.stack.elements[0]
        return [self._member(union, index, start) for index in range(len(union.members))]

    def _fixed(self, header: Header) -> HeaderCells:
        return HeaderCells(
            header.type,
            lambda offset: self.packet.cell(header.base + offset),
            lambda: [self.packet.cell(sibling) for sibling in header.siblings],
        )

    def _member(self, union: Union, index: int, start: Value) -> HeaderCells:
        header = union.members[index]
        siblings = [other.valid for other in union.members if other is not header]
        return self._chosen(header.type, start, union.base, header.base, siblings)

    def _chosen(self, kind: HeaderType, start: Value, first: int, base: int, siblings: list[int]) -> HeaderCells:
        """Return a header in a stack's element at `start`; slots have their numbers in the first element."""
        return HeaderCells(
            kind,
            lambda offset: self.packet.element_cell(start, first, base + offset),
            lambda: [self.packet.element_cell(start, first, sibling) for sibling in siblings],
        )

    def _element(self, stack: Stack, index: Data | End) -> Value:
        """Return the address of an element."""
        if isinstance(index, End):
            number = self.packet.number(stack.next)
            if index is End.LAST:
                number = self.e.b.sub(number, self.e.i64(1))
        else:
            number = self._index(index, stack.size)
        start = self.packet.cell(stack.base).pointer
        return self.e.at(start, self.e.b.mul(number, self.e.i64(self.packet.layout.stride(stack))))
