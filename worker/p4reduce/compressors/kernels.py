"""Kernels of compressors: the choice of elements in one pass over a bucket's parameters, and what is sent of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from p4reduce_runtime.kernels import kernel
from p4reduce_runtime.records import Vector

Floats = Vector[np.float32]
Indices = Vector[np.int64]


class Parts(NamedTuple):
    """Parameters whose elements are parts of arrays, [parameters] each."""

    elements: Indices
    length: Indices
    """Elements of a bin."""
    residue: Indices
    """The index at which its residue begins; -1: it has none."""
    gradient: Indices
    total: Indices


_MAGNITUDE = np.uint32(0x7FFF_FFFF)
"""Without the sign, bits rise with numbers, and a NaN's are above an infinity's."""
_INFINITY = np.uint32(0x7F80_0000)
_AT_ONCE = 4096
"""Elements that stay in the processor's first cache between two passes."""


@kernel()
def largest_magnitude(numbers: Floats) -> np.uint32:
    """Return the bits of the largest |x| of these floats."""
    bits, most = numbers.view(np.uint32), np.uint32(0)
    for i in range(len(bits)):
        most = max(most, bits[i] & _MAGNITUDE)
    return most


@kernel()
def _reaching(sums: Floats, own: Floats, most: np.float32, start: int, indices: Indices, count: int) -> int:
    """Append the elements where |sums + own| is `most` or more, and return the new count."""
    for i in range(len(sums)):  # without branches, which a processor would predict wrong
        indices[count] = start + i
        count += int(abs(sums[i] + own[i]) >= most)
    return count


@kernel()
def select(
    parts: Parts,
    largest_only: bool,
    residues: Floats,
    gradients: Floats,
    total: Floats,
    indices: Indices,
    ends: Indices,
    scales: Floats,
) -> int:
    """Add up G = residue + gradient of each parameter, and choose elements bin by bin. Return -1.

    Those where |G + gradient| reaches the bin's largest |G|, or with `largest_only` that of the largest |G|, the first
    among equals. Nothing of a bin where G is all zero, nor of a parameter whose gradient is.

    Writes G to `total`, and the mean over a parameter's bins of the largest |G| to `scales`. The elements chosen,
    counted from their parameter's first and rising, are written to `indices` one parameter after the other, each up to
    its place in `ends`; it has a place more than there are elements. Returns instead the number of a parameter where G
    is not all finite.
    """
    count = 0
    for p in range(len(ends)):
        size, length, at, kept = parts.elements[p], parts.length[p], parts.total[p], parts.residue[p]
        first, bins, together, nonzero = count, 0, np.float64(0), False
        for start in range(0, size, length):
            stop = min(start + length, size)
            own = gradients[parts.gradient[p] + start : parts.gradient[p] + stop]
            sums = total[at + start : at + stop]
            if kept >= 0:
                before = residues[kept + start : kept + stop]
                for i in range(len(sums)):
                    sums[i] = before[i] + own[i]
            else:
                for i in range(len(sums)):
                    sums[i] = own[i]
            most = largest_magnitude(sums)
            if most >= _INFINITY:
                return p
            largest = np.uint32(most).view(np.float32)
            together += np.float64(largest)
            bins += 1
            if not nonzero:
                for i in range(len(own)):
                    if own[i] != 0:
                        nonzero = True
                        break
            if most == 0:
                continue
            if not largest_only:
                count = _reaching(sums, own, largest, start, indices, count)
                continue
            bits = sums.view(np.uint32)
            for i in range(len(bits)):
                if bits[i] & _MAGNITUDE == most:
                    indices[count] = start + i
                    count += 1
                    break
        if not nonzero:
            count = first
        ends[p] = count
        scales[p] = np.float32(together / bins) if bins else np.float32(0)
    return -1


@kernel()
def subtract(
    total: Floats,
    begin: Indices,
    indices: Indices,
    ends: Indices,
    amounts: Floats,
    kept: Indices,
    signs: Vector[np.int8],
    kept_ends: Indices,
) -> int:
    """Subtract a parameter's own of `amounts` times its sign from each element chosen that is not 0.

    `begin`: each parameter's first index in `total`. Writes those elements to `kept` and their signs, -1 or 1, to
    `signs`, one parameter after the other, each up to its place in `kept_ends`, and returns the last of these.
    """
    count = first = 0
    for p in range(len(ends)):
        for i in range(first, ends[p]):
            place = begin[p] + indices[i]
            value = total[place]
            sign = np.int8(value > 0) - np.int8(value < 0)
            kept[count] = indices[i]
            signs[count] = sign
            total[place] = value - np.float32(sign) * amounts[p]
            count += int(sign != 0)
        kept_ends[p] = count
        first = ends[p]
    return count


@kernel()
def move_all(
    begin: Indices,
    old_begin: Indices,
    olds: Floats,
    gradient_begin: Indices,
    gradients: Floats,
    weight: np.float32,
    moved: Floats,
    used: Vector[np.bool_],
) -> int:
    """Move each parameter's moving average by `weight` towards its gradient, from `olds` to `moved`. Return -1.

    `begin`: where each begins in `moved`, and the end. `old_begin`: in `olds`; -1: it is 0. `used` becomes whether a
    gradient is not all zero. Returns instead the number of a parameter where an average is not all finite.
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
            if largest_magnitude(found) >= _INFINITY:
                return p
            if not used[p] and largest_magnitude(given) > 0:
                used[p] = True
    return -1
