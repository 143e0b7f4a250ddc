"""Kernels of INCEPTIONN: numbers into tags and streams, and back.

There are no branches on a number's class, which a processor would predict wrong: each number is made in every width,
and the place in a stream moves on for the one it has.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from p4reduce_runtime.kernels import kernel

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

_AT_ONCE = 1024


@kernel(
    "UniTuple(int64, 3)(float32[::1], float64, float64, float64, float64, float64, int64, int64, float64, boolean, "
    "uint8[::1], uint8[::1], uint16[::1], float32[::1])",
    allocates=True,
)
def encode(
    values: Floats,
    least_8: float,
    least_16: float,
    least_32: float,
    per_8: float,
    per_16: float,
    most_8: int,
    most_16: int,
    rounding: float,
    keep_zeros: bool,
    tags: Bytes,
    units_8: Bytes,
    units_16: NDArray[np.uint16],
    whole: Floats,
) -> tuple[int, int, int]:
    """Write the tags and the three streams, each with a place more than there are numbers; return how many of each."""
    ones = twos = fours = 0
    shorts, halves, own = np.empty(_AT_ONCE, np.uint8), np.empty(_AT_ONCE, np.uint16), np.empty(_AT_ONCE, np.uint8)
    for start in range(0, len(values), _AT_ONCE):
        part = values[start : start + _AT_ONCE]
        for i in range(len(part)):
            size = np.float64(abs(part[i]))
            near = min(size, least_32)
            sign = np.int32(part[i] < 0)
            short = min(np.int32(near * per_8 + rounding), np.int32(most_8))
            shorts[i] = short | sign << 7
            halves[i] = min(np.int32(near * per_16 + rounding), np.int32(most_16)) | sign << 15
            has_8, has_16 = (size >= least_8) & ((short > 0) | keep_zeros), size >= least_16
            own[i] = np.uint8(has_8 | has_16) + np.uint8(has_16) + np.uint8(size >= least_32)
        for i in range(len(part)):
            units_8[ones] = shorts[i]
            units_16[twos] = halves[i]
            whole[fours] = part[i]
            ones += int(own[i] == 1)
            twos += int(own[i] == 2)
            fours += int(own[i] == 3)
        tag_bytes = (len(part) + 3) >> 2
        for i in range(len(part), 4 * tag_bytes):
            own[i] = 0
        for i in range(tag_bytes):
            tags[(start >> 2) + i] = own[4 * i] | own[4 * i + 1] << 2 | own[4 * i + 2] << 4 | own[4 * i + 3] << 6
    return ones, twos, fours


@kernel(
    "void(Array(uint8, 1, 'C', True), Array(uint8, 1, 'C', True), Array(uint16, 1, 'C', True), "
    "Array(float32, 1, 'C', True), int64, float64, float32[::1])"
)
def decode(
    tags: Bytes, units_8: Bytes, units_16: NDArray[np.uint16], whole: Floats, shift: int, unit: float, values: Floats
) -> None:
    """Write the numbers, four for each byte of tags; the streams have a place more than these say.

    16 bits count in `unit`, 8 bits in `unit` shifted to the left.
    """
    ones = twos = fours = 0
    for byte in range(len(tags)):
        part = values[4 * byte : 4 * byte + 4]
        for i in range(4):
            tag = int(tags[byte]) >> 2 * i & 3
            short, half = int(units_8[ones]), int(units_16[twos])
            is_one, is_two = -int(tag == 1), -int(tag == 2)  # all bits, or none
            size = (short & 0x7F) << shift & is_one | half & 0x7FFF & is_two
            negative = short >> 7 & is_one | half >> 15 & is_two
            part[i] = np.float32(((size ^ -negative) + negative) * unit)
            if tag == 3:  # rare: as often as a number above the scale
                part[i] = whole[fours]
                fours += 1
            ones -= is_one
            twos -= is_two
