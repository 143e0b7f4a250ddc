"""Match tuples: their canonical form, and value and mask of an element."""

from __future__ import annotations

from typing import Any

from p4reduce_switch.program.errors import ProgramError

Match = tuple[Any, ...]


def mask_of(kind: str, width: int, part: Any) -> tuple[int, int]:
    """Return (value, mask) of one element of a match tuple; (0, 0) for ranges, which are compared separately."""
    full = (1 << width) - 1
    match kind:
        case "exact":
            return part, full
        case "lpm":
            value, length = part
            return value, full ^ (full >> length)
        case "ternary":
            value, mask = part
            return value, mask
        case "optional":
            return (0, 0) if part is None else (part, full)
    return 0, 0


def canonical(kind: str, width: int, part: Any, name: str) -> Any:
    """Return one element of a match tuple with the bits outside its mask cleared; ValueError if malformed."""
    full = (1 << width) - 1
    try:
        match kind:
            case "exact":
                _fit(part, full, name)
                return part
            case "lpm":
                value, length = part
                _fit(value, full, name)
                if not 0 <= length <= width:
                    raise ValueError(f"{name}: prefix length {length} is outside 0..{width}")
                return value & (full ^ (full >> length)), length
            case "ternary":
                value, mask = part
                _fit(value, full, name)
                _fit(mask, full, name)
                return value & mask, mask
            case "range":
                low, high = part
                _fit(low, full, name)
                _fit(high, full, name)
                if low > high:
                    raise ValueError(f"{name}: empty range {low}..{high}")
                return low, high
            case "optional":
                if part is not None:
                    _fit(part, full, name)
                return part
    except TypeError:
        raise ValueError(f"{name}: {part!r} is not a {kind} match") from None
    raise ProgramError(f"unknown match kind {kind}")


def _fit(value: int, full: int, name: str) -> None:
    if not 0 <= value <= full:
        raise ValueError(f"{name}: {value} does not fit {full.bit_length()} bits")
