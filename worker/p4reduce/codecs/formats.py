"""The formats of floating-point numbers: those of `state.FORMATS` in memory; 32, 16 or 8 bits a number as sent.

    32 bits:       q = rint(x · 2^(m - E))                    m = 30 - L
    16 and 8 bits: q = rint(x · 2^(m - E)), |q| <= 2^m        m = bits - 2 - L

E is the block's exponent: the largest |x| of the block on any rank is below 2^E. L = ceil(log2 N) bits are kept free
for the sum of N ranks. The sum is Σ q · 2^(E - m), rounded once, to its type; a mean in 16 or 8 bits is rounded to
float32 before. In these a scale is float32, at most 2^127: blocks below 2^(m - 127) count in units of 2^-127. Where
2^E is beyond the type, |q| <= 2^m - 1. The highest bit of a sum's lane then only repeats its sign, so a flip of it is
found (decision 12).

The error of a sum in 32 bits: the scaling is exact (a power of two, in float64), each rint is off by at most 1/2, so
before the last rounding the sum is off by at most N · 2^(E - 31 + L). With M the largest |x| of the block over all
ranks (M >= 2^(E-1)) that is at most N · 2^(L - 30) · M. A sum beyond float32's range becomes an infinity, as it does in
float32 arithmetic; the mean of finite numbers is finite, because the division by N comes before that last rounding.
Only in blocks of denormal numbers (f = 0) is E larger than needed. In 16 and 8 bits a number is off by at most half a
unit, 2^(E - m - 1), and the largest of a block by at most one.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs.arrays import FLOATS
from p4reduce.errors import InvalidTensorError, LaneOverflowError
from p4reduce.protocol import state
from p4reduce_contracts.wire.lanes import largest_word

Bits = Literal[32, 16, 8]
"""Bits of a number on the way."""
FORMS: Final = {FLOATS[each.name]: form for form, each in enumerate(state.FORMATS)}
"""The formats of numbers in memory that are summed."""
_LARGEST_SCALE: Final = 2.0**127


def check_bits(bits: int | None) -> None:
    """Raise InvalidTensorError unless numbers can be sent in so many bits; None: the type's default."""
    if bits is not None and (type(bits) is not int or bits not in (32, 16, 8)):
        raise InvalidTensorError(f"bits is {bits!r}; give 32, 16 or 8, the bits in which a number is sent")


def default_bits(dtype: np.dtype[Any]) -> int:
    """Return in how many bits numbers of a type are sent where that is not given."""
    return 32 if dtype == np.float32 else 16


def headroom_bits(world_size: int) -> int:
    """Return L = ceil(log2 N), the bits kept free so that N integers can be added."""
    return (world_size - 1).bit_length()


def magnitude_bits(bits: int, world_size: int) -> int:
    """Return m: a number becomes at most 2^m units. LaneOverflowError when N ranks leave no unit."""
    found = (30 if bits == 32 else bits - 2) - headroom_bits(world_size)
    if found < 0:
        raise LaneOverflowError(f"lanes of {bits} bits hold no sum of {world_size} rounded floats: use 16 or 32 bits")
    return found


def levels(bits: int, world_size: int) -> int:
    """Return the largest |q| that a rank sends in 8 or 16 bits."""
    return 1 << magnitude_bits(bits, world_size)


@cache
def scales(bits: int, world_size: int) -> NDArray[np.float64]:
    """Return 2^(m - E), the factor that makes integers of a block's numbers, for each exponent field, [256]."""
    found = np.array([2.0 ** (magnitude_bits(bits, world_size) + 126 - field) for field in range(256)])
    return found if bits == 32 else np.minimum(found, _LARGEST_SCALE)


@cache
def units(bits: int, world_size: int, divisor: int) -> NDArray[np.float64]:
    """Return the factor that makes the sum, or its part, of a sum of integers, for each exponent field, [256]."""
    return 1.0 / (divisor * scales(bits, world_size))


@cache
def underflow_limits(bits: int, world_size: int) -> NDArray[np.uint32]:
    """Return the bits of the largest positive float32 that becomes 0 (rint of 1/2) for each exponent field, [256]."""
    return (0.5 / scales(bits, world_size)).astype(np.float32).view(np.uint32)


@cache
def largest_sum(bits: int, world_size: int) -> int:
    """Return the largest |sum| of N words. A float32 below 2^E is at most (1 - 2^-24) · 2^E."""
    if bits == 32:
        return world_size * round((1 - 2.0**-24) * (1 << magnitude_bits(bits, world_size)))
    return largest_word(bits, world_size * levels(bits, world_size))
