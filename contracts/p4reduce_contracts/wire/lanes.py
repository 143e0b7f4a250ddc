"""The rules of lanes: how wide they are, and how many ranks' integers fit one. codecs/integers.py of the
worker packs them."""

from __future__ import annotations

from typing import Final

from p4reduce_contracts.errors import InvalidTensorError, LaneOverflowError

WIDTHS: Final = (4, 5, 6, 8, 10, 16, 32)


def lanes_per_word(bits: int) -> int:
    return 32 // bits


def lane_limit(bits: int) -> int:
    """The largest |sum| a lane can hold: 2^(bits-1) - 1."""
    return (1 << bits - 1) - 1


def largest_word(bits: int, bound: int) -> int:
    """Return the largest |word| of lanes that hold integers of up to `bound` each."""
    return bound * sum(1 << bits * lane for lane in range(lanes_per_word(bits)))


def narrowest(world_size: int, bound: int = 1) -> int:
    """The narrowest lane that holds the sum of `world_size` integers of at most `bound`."""
    for bits in WIDTHS:
        if world_size * bound <= lane_limit(bits):
            return bits
    raise LaneOverflowError(_too_much(world_size, bound, WIDTHS[-1]))


def check_width(bits: int) -> None:
    """InvalidTensorError unless lanes can be `bits` wide."""
    if bits not in WIDTHS:
        raise InvalidTensorError(f"lanes are {', '.join(map(str, WIDTHS[:-1]))} or {WIDTHS[-1]} bits wide, not {bits}")


def check_lanes(world_size: int, bound: int, bits: int, what: str = "the tensor") -> None:
    """LaneOverflowError if `world_size` integers of at most `bound` could leave a lane."""
    if world_size * bound > lane_limit(bits):
        raise LaneOverflowError(f"{what}: {_too_much(world_size, bound, bits)}")


def _too_much(world_size: int, bound: int, bits: int) -> str:
    total, limit = world_size * bound, lane_limit(bits)
    fits = [f"lanes of at least {width} bits" for width in WIDTHS if total <= lane_limit(width)][:1]
    if limit >= world_size:
        fits.append(f"|t| <= {limit // world_size}")
    advice = " or ".join(fits) or f"lanes of {WIDTHS[-1]} bits and |t| <= {lane_limit(WIDTHS[-1]) // world_size}"
    return (
        f"{world_size} ranks x |t| <= {bound} can reach {total}, and a lane of {bits} bits holds {limit}; use {advice}"
    )
