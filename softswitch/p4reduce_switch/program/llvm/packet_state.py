"""Access of emitted code to the slots of a packet, on the stack or in its record."""

from __future__ import annotations

from dataclasses import dataclass

from p4reduce_switch.program.layout import Kind, Layout
from p4reduce_switch.program.llvm.emitter import I64, I128, POINTER, Emitter, Value
from p4reduce_switch.program.llvm.numbers import Number, Numbers


@dataclass(frozen=True, slots=True)
class Cell:
    """A slot: its address and its kind."""

    pointer: Value
    kind: Kind
    place: Value | None = None
    """The address of its value's address; None: the value is at `pointer`."""


class PacketState:
    """The slots of one packet; `record` points to those in memory."""

    def __init__(self, emitter: Emitter, numbers: Numbers, layout: Layout, record: Value) -> None:
        self.e = emitter
        self.n = numbers
        self.layout = layout
        self.record = record
        self.locals = {
            slot: Cell(emitter.local(I64 if kind.bytes_ == 8 else I128, align=kind.bytes_), kind)
            for slot, kind in enumerate(layout.kinds)
            if slot not in layout.offsets
        }
        self.places = {slot: emitter.local(POINTER) for slot in layout.moving}

    def cell(self, slot: int) -> Cell:
        """Return the cell of a slot."""
        if slot in self.locals:
            return self.locals[slot]
        start = self.e.at(self.record, self.layout.offsets[slot])
        return Cell(start, self.layout.kinds[slot], self.places.get(slot))

    def element_cell(self, start: Value, first: int, slot: int) -> Cell:
        """Return the cell of a slot of the stack element at `start`, by its number in the first element."""
        offset = self.layout.offsets[slot] - self.layout.offsets[first]
        return Cell(self.e.at(start, offset), self.layout.kinds[slot])

    # ---- where values are

    def bytes_of(self, cell: Cell) -> Value:
        """Return a pointer to a slot's value."""
        return cell.pointer if cell.place is None else self.e.load_pointer(cell.place)

    def refer(self, cell: Cell, value: Value) -> None:
        """Take `value` as the address of a slot's value, which nothing changes while the packet is processed."""
        self.e.store(value, cell.place)

    def written(self, cell: Cell) -> None:
        """Take `pointer` as the address of a slot's value, which has been stored there."""
        if cell.place is not None:
            self.e.store(cell.pointer, cell.place)

    # ---- values

    def load(self, cell: Cell) -> Number:
        """Load a slot, in its size."""
        kind = cell.kind
        if kind.wide:
            return self.n.from_limbs(list(self.n.load_limbs(self.bytes_of(cell), kind.bytes_, kind.signed)))
        return self.e.load(I64 if kind.bytes_ == 8 else I128, cell.pointer)

    def store(self, cell: Cell, value: Number) -> None:
        """Store a value of the slot's size."""
        if cell.kind.wide:
            self.n.store_bytes(value, cell.pointer, cell.kind.bytes_)
            self.written(cell)
        else:
            self.e.store(value, cell.pointer)

    def clear(self, cell: Cell) -> None:
        """Store 0."""
        if cell.place is not None:
            self.refer(cell, self.e.module.zeros(cell.kind.bytes_))
        elif cell.kind.wide:
            self.e.clear(cell.pointer, cell.kind.bytes_)
        else:
            self.store(cell, self.n.constant(0, 8 * cell.kind.bytes_))

    def copy(self, target: Cell, source: Cell) -> None:
        """Copy another slot of the same kind."""
        if target.kind.wide:
            self.e.move(target.pointer, self.bytes_of(source), target.kind.bytes_)
            self.written(target)
        else:
            self.store(target, self.load(source))

    def same(self, a: Cell, b: Cell) -> Value:
        """Return whether two slots of the same kind are equal."""
        if a.kind.wide:
            found = self.e.b.call(self.n.helpers.same, [self.bytes_of(a), self.bytes_of(b), self.e.i64(a.kind.bytes_)])
            return self.e.b.trunc(found, self.e.bit(True).type)
        return self.n.equal(self.load(a), self.load(b))

    def number(self, slot: int) -> Value:
        """Load a slot of at most 64 bits."""
        return self.load(self.cell(slot))

    def set(self, slot: int, value: Value | int) -> None:
        """Store into a slot of at most 64 bits."""
        self.store(self.cell(slot), self.e.i64(value) if isinstance(value, int) else value)
