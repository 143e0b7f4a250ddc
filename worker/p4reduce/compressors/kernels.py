"""Kernels of compressors: the choice of elements in one pass over a parameter, and what is sent of them.

Those that end in `_all` take all parameters of a bucket: a call from Python costs more than a small parameter.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p4reduce_runtime.kernels import kernel

Floats = NDArray[np.float32]
Bits = NDArray[np.uint32]
Indices = NDArray[np.int64]
_Each = Annotated[NDArray[np.int64], "int64[::1]"]


class Parts(NamedTuple):
    """Parameters whose elements are parts of arrays, [parameters] each."""

    elements: _Each
    length: _Each
    """Of a bin."""
    residue: _Each
    """Where its residue begins; -1: it has none."""
    gradient: _Each
    total: _Each


_MAGNITUDE = np.uint32(0x7FFF_FFFF)
"""Without the sign, bits rise with numbers, and a NaN's are above an infinity's."""
_INFINITY = np.uint32(0x7F80_0000)
_AT_ONCE = 4096
"""Elements that stay in the processor's first cache between two passes."""


@kernel("uint32(uint32[::1])")
def largest_magnitude(bits: Bits) -> np.uint32:
    """Return the bits of the largest |x| of these floats."""
    most = np.uint32(0)
    for i in range(len(bits)):
        most = max(most, bits[i] & _MAGNITUDE)
    return most


@kernel("void(uint32[::1], int64, uint32[::1])")
def largest_by_bin(bits: Bits, length: int, largest: Bits) -> None:
    """Write the bits of each bin's largest |x| to `largest`, [bins]. The last bin may be shorter than `length`."""
    for number in range(len(largest)):
        largest[number] = largest_magnitude(bits[number * length : (number + 1) * length])


@kernel("int64(float32[::1], float32[::1], float32, int64, int64[::1], int64)")
def _reaching(sums: Floats, own: Floats, most: np.float32, start: int, indices: Indices, count: int) -> int:
    """Append the elements where |sums + own| is `most` or more, and return the new count."""
    for i in range(len(sums)):  # without branches, which a processor would predict wrong
        indices[count] = start + i
        count += int(abs(sums[i] + own[i]) >= most)
    return count


@kernel("int64(uint32[::1], uint32, int64, int64, int64[::1], int64)")
def _largest(bits: Bits, most: np.uint32, per_bin: int, start: int, indices: Indices, count: int) -> int:
    """Append the `per_bin` elements of the largest magnitude, no zeros, the first among equals; return the new count.

    `most`: the largest magnitude, not 0.
    """
    least, room = most, per_bin  # `room`: how many of the magnitude `least` are chosen
    while room > 1:
        equal, below = 0, np.uint32(0)
        for i in range(len(bits)):
            magnitude = bits[i] & _MAGNITUDE
            equal += int(magnitude == least)
            if magnitude < least:
                below = max(below, magnitude)
        if equal >= room or below == 0:
            break
        least, room = below, room - equal
    for i in range(len(bits)):
        magnitude = bits[i] & _MAGNITUDE
        if magnitude >= least and (magnitude > least or room > 0):
            room -= int(magnitude == least)
            indices[count] = start + i
            count += 1
    return count


@kernel("int64(float32[::1], float32[::1], int64, int64, float32[::1], uint32[::1], uint32[::1], int64[::1])")
def select(
    residue: Floats,
    gradient: Floats,
    length: int,
    per_bin: int,
    total: Floats,
    total_bits: Bits,
    largest: Bits,
    indices: Indices,
) -> int:
    """Add up G = residue + gradient, and choose elements bin by bin.

    With `per_bin` 0 those where |G + gradient| reaches the bin's largest |G|; else the `per_bin` elements of the
    largest |G|, the first among equals, none where G is 0. Nothing of a bin where G is all zero.

    `residue` may be empty: G is the gradient. Bins have `length` elements, the last perhaps fewer. Writes G to `total`,
    [elements], whose bits `total_bits` are; the bits of each bin's largest |G| to `largest`, [bins]; and the chosen
    elements, rising, to `indices`, which has a place more than there are elements. Returns how many are chosen, none
    where the gradient is all zero; -1 where G is not all finite.
    """
    count = 0
    nonzero = False
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
        most = largest_magnitude(bits)
        largest[number] = most
        if most >= _INFINITY:
            return -1
        if not nonzero:
            for i in range(len(own)):
                if own[i] != 0:
                    nonzero = True
                    break
        if most == 0:
            continue
        if per_bin:
            count = _largest(bits, most, per_bin, start, indices, count)
        else:
            count = _reaching(sums, own, np.uint32(most).view(np.float32), start, indices, count)
    return count if nonzero else 0


@kernel(
    "int64(Parts, float32[::1], float32[::1], float32[::1], uint32[::1], uint32[::1], int64[::1], int64[::1],"
    " float32[::1])"
)
def select_all(
    parts: Parts,
    residues: Floats,
    gradients: Floats,
    total: Floats,
    total_bits: Bits,
    largest: Bits,
    indices: Indices,
    ends: Indices,
    scales: Floats,
) -> int:
    """Choose elements of each parameter where |G + gradient| reaches the bin's largest |G|; see `select`. Return -1.

    The elements chosen, counted from their parameter's first, are written to `indices` one parameter after the other,
    each up to its place in `ends`. `largest` has a place for each bin of all. The mean over a parameter's bins of the
    largest |G| is written to `scales`. Returns instead the number of a parameter where G is not all finite.
    """
    count = first = 0
    for p in range(len(ends)):
        size, at, kept = parts.elements[p], parts.total[p], parts.residue[p]
        own = gradients[parts.gradient[p] : parts.gradient[p] + size]
        residue = residues[kept : kept + size] if kept >= 0 else residues[:0]
        bins = (size + parts.length[p] - 1) // parts.length[p]
        most = largest[first : first + bins]
        sums, bits = total[at : at + size], total_bits[at : at + size]
        found = select(residue, own, parts.length[p], 0, sums, bits, most, indices[count:])
        if found < 0:
            return p
        count += found
        ends[p] = count
        together = np.float64(0)
        for number in range(bins):
            together += np.float64(np.uint32(most[number]).view(np.float32))
        scales[p] = np.float32(together / bins) if bins else np.float32(0)
        first += bins
    return -1


@kernel("int64(float32[::1], int64[::1], float32, int64[::1], int8[::1])")
def subtract(total: Floats, indices: Indices, amount: np.float32, kept: Indices, signs: NDArray[np.int8]) -> int:
    """Subtract `amount` times its sign from each of these elements that is not 0, and return how many are not.

    Writes those elements to `kept`, and their signs, -1 or 1, to `signs`.
    """
    count = 0
    for i in range(len(indices)):
        value = total[indices[i]]
        sign = np.int8(value > 0) - np.int8(value < 0)
        kept[count] = indices[i]
        signs[count] = sign
        total[indices[i]] = value - np.float32(sign) * amount
        count += int(sign != 0)
    return count


@kernel("int64(float32[::1], int64[::1], int64[::1], int64[::1], float32[::1], int64[::1], int8[::1], int64[::1])")
def subtract_all(
    total: Floats,
    begin: Indices,
    indices: Indices,
    ends: Indices,
    amounts: Floats,
    kept: Indices,
    signs: NDArray[np.int8],
    kept_ends: Indices,
) -> int:
    """Subtract from the elements chosen of each parameter its own of `amounts`; see `subtract`.

    `begin`: where each parameter begins in `total`. Writes to `kept` and `signs` one parameter after the other, each up
    to its place in `kept_ends`, and returns the last of these.
    """
    count = first = 0
    for p in range(len(ends)):
        chosen = indices[first : ends[p]]
        count += subtract(total[begin[p] :], chosen, amounts[p], kept[count:], signs[count:])
        kept_ends[p] = count
        first = ends[p]
    return count


@kernel(
    "int64(int64[::1], int64[::1], float32[::1], int64[::1], float32[::1], uint32[::1], float32, float32[::1],"
    " uint32[::1], boolean[::1])"
)
def move_all(
    begin: Indices,
    old_begin: Indices,
    olds: Floats,
    gradient_begin: Indices,
    gradients: Floats,
    gradient_bits: Bits,
    weight: np.float32,
    moved: Floats,
    moved_bits: Bits,
    used: NDArray[np.bool_],
) -> int:
    """Move each parameter's moving average by `weight` towards its gradient, from `olds` to `moved`. Return -1.

    `begin`: where each begins in `moved`, and the end. `old_begin`: in `olds`; -1: it is 0. The bits of `gradients` and
    `moved` are in arrays too. `used` becomes whether a gradient is not all zero. Returns instead the number of a
    parameter where an average is not all finite.
    """
    for p in range(len(used)):
        used[p] = False
        for start in range(begin[p], begin[p + 1], _AT_ONCE):
            stop = min(start + _AT_ONCE, begin[p + 1])
            first = gradient_begin[p] + start - begin[p]
            given, found = gradients[first : first + stop - start], moved[start:stop]
            if old_begin[p] < 0:
                for i in range(len(found)):
                    found[i] = weight * given[i]
            else:
                before = olds[old_begin[p] + start - begin[p] :]
                for i in range(len(found)):
                    found[i] = before[i] + weight * (given[i] - before[i])
            if largest_magnitude(moved_bits[start:stop]) >= _INFINITY:
                return p
            if not used[p] and largest_magnitude(gradient_bits[first : first + stop - start]) > 0:
                used[p] = True
    return -1
