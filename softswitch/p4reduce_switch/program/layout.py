"""The storage of each slot of a packet: a local variable, or the packet's record in memory.

Wide fields, varbit fields and the elements of stacks are in the record, all others are local variables if possible.
In the record a slot has 8 bytes, 16 when it is wider than 64 bits, and as many network bytes as it needs above 128.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from p4reduce_switch.program.errors import UnsupportedConstructError
from p4reduce_switch.program.ir.features import walk
from p4reduce_switch.program.ir.places import HeaderStack, HeaderType, UnionStack
from p4reduce_switch.program.ir.program import Program

NATIVE = 128
"""Bits of the widest field that is one of LLVM's integers; wider ones are network bytes."""
MAX_VARBIT_BYTES = 1 << 14


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of a slot: `bytes_` of memory, in network byte order if `wide`; of a varbit field the maximum."""

    bits: int
    signed: bool
    wide: bool
    bytes_: int

    @property
    def aligned_bytes(self) -> int:
        """Bytes of the slot in a record: whole words."""
        return (self.bytes_ + 7) // 8 * 8


COUNT = Kind(64, True, False, 8)
"""The kind of the target's own slots, of lengths, and of stack counters."""
TRUTH = Kind(1, False, False, 8)


def kind_of(bits: int, signed: bool) -> Kind:
    """Return the kind of a field of fixed width."""
    if bits <= NATIVE:
        return Kind(bits, signed, False, 8 if bits <= 64 else 16)
    return Kind(bits, signed, True, (bits + 7) // 8)


def kinds_of(header: HeaderType) -> list[Kind]:
    """Return the kinds of a header's slots, its varbit field's length and its validity included."""
    kinds = [kind_of(field.width, field.signed) for field in header.fields]
    if header.varbit is not None:
        varbit_bytes = header.varbit_bytes
        if not 0 < varbit_bytes <= MAX_VARBIT_BYTES:
            raise UnsupportedConstructError("a varbit field without a limit")
        kinds[header.varbit.offset] = Kind(8 * varbit_bytes, False, True, varbit_bytes)
        kinds.append(COUNT)
    return [*kinds, TRUTH]


class Layout:
    """Kinds and places of all slots. With `in_memory` all are in the record."""

    def __init__(self, program: Program, *, in_memory: bool) -> None:
        self.kinds: list[Kind] = [COUNT] * program.slots
        for header in program.headers:
            self.kinds[header.base : header.base + header.type.slots] = kinds_of(header.type)
        self.offsets: dict[int, int] = {}
        """Offsets in bytes in the record, of the slots in it."""
        self.size = 0
        self.moving: frozenset[int] = frozenset()
        """Slots whose value may be elsewhere than in the record: in the frame, for example."""
        stacks = {node for node in walk(program) if isinstance(node, (HeaderStack, UnionStack))}
        for stack in sorted(stacks, key=lambda found: found.base):
            self._place(range(stack.base, stack.base + stack.size * stack.stride))
        lengths = {header.base + varbit.offset for header in program.headers if (varbit := header.type.varbit)}
        alone = [slot for slot, kind in enumerate(self.kinds) if (kind.wide or in_memory) and slot not in self.offsets]
        self._place(slot for slot in alone if in_memory or slot in lengths)
        self.cleared = self.size
        """Bytes of the record, from its start, that are 0 in a new packet."""
        if not in_memory:
            self.moving = frozenset(alone) - lengths
            self._place(sorted(self.moving))

    def _place(self, slots: Iterable[int]) -> None:
        for slot in slots:
            self.offsets[slot] = self.size
            self.size += self.kinds[slot].aligned_bytes

    def stride(self, stack: HeaderStack | UnionStack) -> int:
        """Bytes from one element of a stack to the next."""
        return sum(kind.aligned_bytes for kind in self.kinds[stack.base : stack.base + stack.stride])
