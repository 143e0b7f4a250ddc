"""The choice of elements in one pass over a parameter, compiled: selection.py loads and calls these."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from p4reduce_runtime.kernels import kernel

Floats = NDArray[np.float32]
Bits = NDArray[np.uint32]


@kernel(
    "int64(float32[::1], float32[::1], int64, boolean, boolean, float32[::1], uint32[::1], uint32[::1], int64[::1])"
)
def select(
    residue: Floats,
    gradient: Floats,
    length: int,
    doubled: bool,
    zeros: bool,
    total: Floats,
    total_bits: Bits,
    largest: Bits,
    indices: NDArray[np.int64],
) -> int:
    """Add up G = residue + gradient, and choose where |G| (`doubled`: |G + gradient|) reaches its bin's largest |G|.

    `residue` may be empty: G is the gradient. Bins have `length` elements, the last perhaps fewer; one of zeros has no
    choice, and without `zeros` no element where G is 0. Writes G to `total`, [elements], whose bits `total_bits` are;
    the bits of each bin's largest |G| to `largest`, [bins]; and the chosen elements, rising, to `indices`, which has
    a place more than there are elements. Returns how many are chosen, none where the gradient is all zero; -1 where G
    is not all finite.
    """
    magnitude = np.uint32(0x7FFF_FFFF)  # without the sign bits rise with numbers, and a NaN's are above an infinity's
    count = 0
    nonzero = False
    ahead = np.float32(doubled)
    for number in range(len(largest)):
        start = number * length
        stop = min(start + length, len(gradient))
        own, sums, bits = gradient[start:stop], total[start:stop], total_bits[start:stop]
        if len(residue):
            kept = residue[start:stop]
            for i in range(len(sums)):
                sums[i] = kept[i] + own[i]
        else:
            for i in range(len(sums)):
                sums[i] = own[i]
        most_bits = np.uint32(0)
        for i in range(len(bits)):
            most_bits = max(most_bits, bits[i] & magnitude)
        largest[number] = most_bits
        if most_bits >= np.uint32(0x7F80_0000):
            return -1
        if not nonzero:
            for i in range(len(own)):
                if own[i] != 0:
                    nonzero = True
                    break
        if most_bits == 0:
            continue
        most = np.uint32(most_bits).view(np.float32)
        for i in range(len(sums)):  # without branches, which a processor would guess wrong
            indices[count] = start + i
            count += int(abs(sums[i] + ahead * own[i]) >= most)
    if not zeros:
        chosen, count = count, 0
        for i in range(chosen):
            indices[count] = indices[i]
            count += int(total[indices[i]] != 0)
    return count if nonzero else 0


@kernel("void(float32[::1], int64[::1], float32, int8[::1])")
def subtract(total: Floats, indices: NDArray[np.int64], amount: float, signs: NDArray[np.int8]) -> None:
    """Write the sign, -1 or 1, of each of these elements to `signs`, and subtract `amount` times that from it."""
    for i in range(len(indices)):
        sign = 2 * np.int8(total[indices[i]] > 0) - 1
        signs[i] = sign
        total[indices[i]] -= np.float32(sign) * amount
