"""What the generated code calls: checks, and comparisons at places that a packet chooses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from p4reduce_switch.program.errors import ExecutionError

if TYPE_CHECKING:
    from p4reduce_switch.program.python.expressions import Span


def checked_index(index: int, size: int) -> int:
    """`index`, or ExecutionError when a stack or register has no such element."""
    if 0 <= index < size:
        return index
    raise ExecutionError(f"header stack index {index} is outside 0..{size - 1}")


def nonzero(divisor: int) -> int:
    """`divisor`, or ExecutionError for a division by zero."""
    if divisor > 0:
        return divisor
    raise ExecutionError(f"division by {divisor}: P4 defines it for positive divisors only")


def one_valid(f: list[Any], start: int, members: tuple[Span, ...]) -> bool:
    """True when one member of the union at `start` is valid."""
    return any(f[start + member.valid] for member in members)


def one_same(f: list[Any], a: int, b: int, members: tuple[Span, ...]) -> bool:
    """True when one member of the union at `a` is valid and equal to the one at `b`."""
    return any(
        f[a + member.valid]
        and f[a + member.start : a + member.start + member.length]
        == f[b + member.start : b + member.start + member.length]
        for member in members
    )
