"""Headers and unions as the generated code refers to them, and the checks it makes while it runs."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import ExecutionError
from .layout import HeaderType, Union


def checked_index(index: int, size: int) -> int:
    """`index`, or ExecutionError when a stack has no such element."""
    if 0 <= index < size:
        return index
    raise ExecutionError(f"header stack index {index} is outside 0..{size - 1}")


def nonzero(divisor: int) -> int:
    """`divisor`, or ExecutionError for a division by zero."""
    if divisor > 0:
        return divisor
    raise ExecutionError(f"division by {divisor}: P4 defines it for positive divisors only")


@dataclass(frozen=True)
class HeaderRef:
    """A header, maybe one chosen by the packet (then `start` is not a number)."""

    type: HeaderType
    start: str
    rivals: tuple[str, ...] = ()

    def slot(self, offset: int) -> str:
        """Source of the list element at `offset` of the header."""
        return f"f[{int(self.start) + offset}]" if self.start.isdigit() else f"f[{self.start} + {offset}]"

    def slots(self, length: int) -> str:
        """Source of the slice over the header's first `length` slots."""
        if self.start.isdigit():
            return f"f[{self.start}:{int(self.start) + length}]"
        return f"f[{self.start}:{self.start} + {length}]"

    @property
    def valid(self) -> str:
        return self.slot(self.type.valid_offset)


@dataclass(frozen=True)
class UnionRef:
    """A header union, maybe an element of a stack chosen by the packet."""

    union: Union
    start: str

    def member(self, index: int) -> HeaderRef:
        """Member number `index` of the union."""
        headers = list(self.union.members.values())
        offsets = [h.base - self.union.base for h in headers]
        ref = [HeaderRef(h.type, self._shift(o)) for h, o in zip(headers, offsets, strict=True)]
        rivals = tuple(r.valid for i, r in enumerate(ref) if i != index)
        return HeaderRef(ref[index].type, ref[index].start, rivals)

    def _shift(self, offset: int) -> str:
        return str(int(self.start) + offset) if self.start.isdigit() else f"({self.start} + {offset})"

    @property
    def valid(self) -> str:
        return "(" + " or ".join(self.member(i).valid for i in range(len(self.union.members))) + ")"
