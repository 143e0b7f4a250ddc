"""Kernels of coordinates: into entries, back, and the mean of all ranks'."""

from __future__ import annotations

import numpy as np

from p4reduce_runtime.kernels import kernel
from p4reduce_runtime.records import Matrix, ReadOnly, ReadOnlyMatrix, Vector

Indices = Vector[np.int64]
Signs = Vector[np.int8]

HEADER_BYTES = 8
SHORT_GAPS = 120
"""Gaps below this limit take a byte."""
LONG_GAPS = SHORT_GAPS + 7 * 256
"""Gaps below this limit take two bytes; an entry of one byte passes as many elements."""
_PASS = 127
NO_ELEMENT = -2
"""An entry that is not in use, or the second byte of which is missing."""


@kernel()
def encode(
    indices: Indices, signs: Signs, ends: Indices, scales: Vector[np.uint32], data: Vector[np.uint8], data_ends: Indices
) -> None:
    """Write the bytes of several tensors' coordinates to `data`, one after the other, each up to its `data_ends`.

    `indices` and `signs`: of all tensors, each up to its place in `ends`. `scales` are float32 as bits.
    """
    at = first = 0
    for p in range(len(ends)):
        header = at
        at += HEADER_BYTES
        following = 0  # the element behind the one before
        for i in range(first, ends[p]):
            gap = indices[i] - following
            while gap >= LONG_GAPS:
                data[at] = _PASS << 1
                at += 1
                gap -= LONG_GAPS
            minus = int(signs[i] < 0)
            if gap < SHORT_GAPS:
                data[at] = gap << 1 | minus
            else:
                data[at] = SHORT_GAPS + (gap - SHORT_GAPS >> 8) << 1 | minus
                at += 1
                data[at] = gap - SHORT_GAPS & 0xFF
            at += 1
            following = indices[i] + 1
        used = at - header - HEADER_BYTES
        for place in range(4):
            data[header + place] = int(scales[p]) >> 8 * place & 0xFF
            data[header + 4 + place] = used >> 8 * place & 0xFF
        data_ends[p] = at
        first = ends[p]


@kernel()
def _word(row: ReadOnly[np.uint8], at: int) -> int:
    """Return the little-endian word at a place of a row; beyond its end there are zeros, which are not sent."""
    word = 0
    for place in range(at, min(at + 4, len(row))):
        word |= int(row[place]) << 8 * (place - at)
    return word


@kernel()
def read_headers(
    data: ReadOnlyMatrix[np.uint8],
    parts: Matrix[np.int64],
    begin: Matrix[np.int64],
    scales: Matrix[np.float64],
    counts: Matrix[np.int64],
    end: Matrix[np.int64],
) -> tuple[int, int, int]:
    """Read the headers of several tensors, which lie one after the other in each rank's row; [tensors, ranks] each.

    `parts`: elements and sender of each tensor, -1 for all ranks. `begin`: where the first begins, in its first row.
    Writes the others' beginnings, each rank's scale, the bytes of its entries, and the place behind them; what is not
    sent has no entries. Returns the bytes of all entries, the last of those places and -1; for a header that is no
    encoding (a scale that is not finite, more bytes than elements) -1, its rank and its tensor.
    """
    entries = longest = 0
    for p in range(len(parts)):
        elements, sender = parts[p, 0], parts[p, 1]
        for rank in range(len(data)):
            at = end[p - 1, rank] if p else begin[p, rank]
            begin[p, rank] = end[p, rank] = at
            if sender >= 0 and rank != sender:
                continue
            bits = np.uint32(_word(data[rank], at))
            scales[p, rank] = bits.view(np.float32)
            counts[p, rank] = _word(data[rank], at + 4)
            end[p, rank] = at + HEADER_BYTES + counts[p, rank]
            if counts[p, rank] > elements or bits >> np.uint32(23) & np.uint32(0xFF) == 0xFF:
                return -1, rank, p
            entries += counts[p, rank]
            longest = max(longest, end[p, rank])
    return entries, longest, -1


@kernel()
def decode(
    data: ReadOnlyMatrix[np.uint8],
    parts: Matrix[np.int64],
    begin: Matrix[np.int64],
    counts: Matrix[np.int64],
    indices: Indices,
    signs: Signs,
    ends: Matrix[np.int64],
    tensor_ends: Indices,
) -> tuple[int, int]:
    """Write the coordinates of several tensors one after the other, up to their places in `tensor_ends`.

    `parts`, `begin` and `counts` are those of `read_headers`; all entries are in the rows. `indices` and `signs` have a
    place for each byte of all ranks' entries. Those of a tensor's ranks are written one after the other, each up to
    its place in `ends`, [tensors, ranks], which counts from the tensor's first. Returns -1 and 0, or of the first entry
    that is no encoding the element that it stands for, which the tensor does not have, or NO_ELEMENT, and its tensor.
    """
    count = first = 0
    for p in range(len(parts)):
        elements, sender = parts[p, 0], parts[p, 1]
        for rank in range(len(data)):
            if sender >= 0 and rank != sender:
                continue
            row = data[rank]
            at = begin[p, rank] + HEADER_BYTES
            end = at + counts[p, rank]
            following = 0
            while at < end:
                entry = int(row[at])
                at += 1
                gap = entry >> 1
                if gap == _PASS:
                    if entry & 1:
                        return NO_ELEMENT, p
                    following += LONG_GAPS
                    continue
                if gap >= SHORT_GAPS:
                    if at == end:
                        return NO_ELEMENT, p
                    gap = SHORT_GAPS + (gap - SHORT_GAPS << 8 | int(row[at]))
                    at += 1
                following += gap
                if following >= elements:
                    return following, p
                indices[count] = following
                signs[count] = 1 - 2 * (entry & 1)
                count += 1
                following += 1
            ends[p, rank] = count - first
        tensor_ends[p] = first = count
    return -1, 0


@kernel(allocates=True)
def add_means(
    all_indices: Indices,
    all_signs: Signs,
    all_ends: Matrix[np.int64],
    tensor_ends: Indices,
    all_scales: Matrix[np.float64],
    parts: Matrix[np.int64],
    sums: Vector[np.float64],
    means: Vector[np.float32],
) -> None:
    """Write the means of several tensors one after the other to `means`, [elements of all].

    The other arguments are those of `decode`, and what it has written: rising elements that their tensor has. `sums`
    is all zeros too, and is so again at the end: the sums of so many elements are made at once.
    """
    at = np.empty(all_ends.shape[1], np.int64)
    done = first = 0
    for p in range(len(parts)):
        indices, signs = all_indices[first : tensor_ends[p]], all_signs[first : tensor_ends[p]]
        ends, scales = all_ends[p], all_scales[p]
        mean = means[done : done + parts[p, 0]]
        one, end = (0, len(at)) if parts[p, 1] < 0 else (parts[p, 1], parts[p, 1] + 1)
        for rank in range(one, end):
            at[rank] = ends[rank - 1] if rank > one else 0
        count = end - one
        exact, inverse = count & count - 1 == 0, 1 / count  # the same bits as by a division, in less time
        for start in range(0, len(mean), len(sums)):
            stop = min(start + len(sums), len(mean))
            for rank in range(one, end):
                i = at[rank]
                while i < ends[rank] and indices[i] < stop:
                    sums[indices[i] - start] += scales[rank] * signs[i]
                    i += 1
                at[rank] = i
            part = mean[start:stop]
            if exact:
                for i in range(len(part)):
                    part[i] = sums[i] * inverse
                    sums[i] = 0
            else:
                for i in range(len(part)):
                    part[i] = sums[i] / count
                    sums[i] = 0
        done += parts[p, 0]
        first = tensor_ends[p]
