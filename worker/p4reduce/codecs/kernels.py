"""What codecs do to every number of a tensor, in one pass over it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from p4reduce.codecs.arrays import COUNT_SHIFT, NEGATIVE_ZEROS, NOT_FINITE, ZERO_BLOCKS
from p4reduce.protocol.state import FLOAT16
from p4reduce_runtime.kernels import direct, kernel
from p4reduce_runtime.records import ReadOnly, Vector

_DEFAULT: Final = np.uint64(32)
"""Numbers in a block of float32 under the default pipeline: a loop of constant length takes half the time."""


@kernel(inline=True)
def _extremes(numbers: ReadOnly[np.uint32], at: np.uint64, end: np.uint64) -> tuple[np.uint32, np.uint32, np.uint32]:
    """Return the largest of these floats without its sign, the least minus 1 (0: the largest integer), all set bits."""
    largest, least, anys = np.uint32(0), np.uint32(0xFFFFFFFF), np.uint32(0)
    for i in range(at, end):
        bits = np.uint32(numbers[i] & np.uint32(0x7FFFFFFF))
        anys |= numbers[i]
        largest = max(largest, bits)
        least = min(least, np.uint32(bits - np.uint32(1)))
    return largest, least, anys


@kernel()
def _scan(
    numbers: ReadOnly[np.uint32],
    block_numbers: int,
    limits: ReadOnly[np.uint32],
    exponents: Vector[np.uint8],
    nonzero: Vector[np.bool_],
) -> int:
    """Set the largest exponent field in each block of these floats, and whether any of them is not zero.

    Return what was found beside that, as bits, and above them how many numbers that are not 0 are, without their sign,
    at most the limit of their block's exponent field; `limits`: [256], as bits, or empty: none are counted.
    """
    flags = count = 0
    at, size = np.uint64(0), np.uint64(block_numbers)  # unsigned: an index that needs no look at its sign
    for block in range(len(exponents)):
        end = min(at + size, np.uint64(len(numbers)))
        if end - at == _DEFAULT:
            largest, least, anys = _extremes(numbers, at, at + _DEFAULT)
        else:
            largest, least, anys = _extremes(numbers, at, end)
        field = largest >> np.uint32(23)
        if len(limits) and least < limits[field]:
            for i in range(at, end):
                less = np.uint32((numbers[i] & np.uint32(0x7FFFFFFF)) - np.uint32(1))
                count += int(less < limits[field])
        exponents[block] = field
        nonzero[block] = largest != 0
        if largest == 0:
            flags |= ZERO_BLOCKS
            if anys:
                flags |= NEGATIVE_ZEROS
        if field == 255:
            flags |= NOT_FINITE
        at = end
    return flags | count << COUNT_SHIFT


@kernel()
def _scan_halves(
    numbers: ReadOnly[np.uint16], form: int, block_numbers: int, exponents: Vector[np.uint8], nonzero: Vector[np.bool_]
) -> int:
    """Do for 16-bit numbers what `_scan` does for float32: exponent fields are those of float32."""
    flags = 0
    at, size = np.uint64(0), np.uint64(block_numbers)  # unsigned: an index that needs no look at its sign
    for block in range(len(exponents)):
        largest, bits = np.uint16(0), np.uint16(0)
        for i in range(at, min(at + size, np.uint64(len(numbers)))):
            largest = max(largest, np.uint16(numbers[i] & np.uint16(0x7FFF)))
            bits |= numbers[i]
        at += size
        field: Any = np.int64(largest >> np.uint16(7))
        if form == FLOAT16:
            field = np.int64(largest >> np.uint16(10))
            field = 255 if field == 31 else field + 112 if largest != 0 else 0
        exponents[block] = field
        nonzero[block] = largest != 0
        if largest == 0:
            flags |= ZERO_BLOCKS
            if bits != 0:
                flags |= NEGATIVE_ZEROS
        if exponents[block] == 255:
            flags |= NOT_FINITE
    return flags


scan, scan_halves = direct(_scan), direct(_scan_halves)
