"""Coordinates: the few elements AdaComp selects, as small unsigned integers; the encoding of the gather form.

Source: Chen et al., "AdaComp", AAAI 2018, which gives an element 8 bits in bins of fewer than 64 elements (6 bits of
offset in the bin, 2 bits of value) and 16 bits (14 + 2) in bins of up to 16 K, and each tensor one float32 scale.
How the paper marks the end of a bin could not be read here (unverified); this is ours:

    entry  =  offset << 2 | code        code 0: +scale, 1: -scale, 3: end of bin
    an offset that is not above the one before it begins the next bin
    an end-of-bin entry is only there where that does not tell; it passes offset + 1 bins at once

A tensor's bytes are its scale (float32), the number of its entries (uint32) and the entries, little-endian.
Empty bins are common in real gradients (a fifth to a half of them), full stops between full bins are rare: a Gaussian
tensor needs an end-of-bin entry for about one bin in forty.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs.raw import Gathered
from p4reduce.errors import InvalidTensor

SHORT_BIN = 64
"""Bins of fewer elements take 8 bits an element, others 16."""
LONGEST_BIN = 16 * 1024
STREAM_HEADER_BYTES = 8
_MINUS, _UNUSED, _END = 1, 2, 3


class Coordinates(NamedTuple):
    """What one rank sends of one tensor: `scale` times -1 or 1 at each of `indices`."""

    scale: float
    indices: NDArray[np.int64]  #: rising
    signs: NDArray[np.int8]  #: -1 or 1, as many


def entry_bytes(bin_length: int) -> int:
    """Bytes of one entry: 1 or 2."""
    return 1 if bin_length < SHORT_BIN else 2


def most_bytes(elements: int, bin_length: int) -> int:
    """The longest encoding of a tensor: every element selected, and every bin ended."""
    return STREAM_HEADER_BYTES + entry_bytes(bin_length) * (elements + -(-elements // bin_length))


def encode(coordinates: Coordinates, bin_length: int) -> NDArray[np.uint8]:
    """The bytes of a tensor's coordinates."""
    size = entry_bytes(bin_length)
    passed_at_once = 1 << 8 * size - 2
    bins, offsets = np.divmod(coordinates.indices, bin_length)
    gaps = np.diff(bins, prepend=0)
    evident = (gaps == 0) | ((gaps == 1) & (np.diff(offsets, prepend=LONGEST_BIN) <= 0))
    if len(evident):
        evident[0] = gaps[0] == 0  # nothing before it to compare with
    ends = np.where(evident, 0, -(-gaps // passed_at_once))
    places = np.arange(len(bins)) + np.cumsum(ends)
    count = int(len(bins) + ends.sum())
    entries = np.full(count, (passed_at_once - 1) << 2 | _END, np.int64)
    entries[places] = offsets << 2 | np.where(coordinates.signs < 0, _MINUS, 0)
    ended = ends > 0
    entries[places[ended] - 1] = (gaps[ended] - 1) % passed_at_once << 2 | _END  # the last of each run of ends
    header = np.array([coordinates.scale], "<f4").tobytes() + np.array([count], "<u4").tobytes()
    return np.frombuffer(header + entries.astype(f"<u{size}").tobytes(), np.uint8)


def decode(data: NDArray[np.uint8], bin_length: int, elements: int) -> tuple[Coordinates, int]:
    """(coordinates, bytes used) of the tensor at the start of `data`; bytes that are not there read as 0.

    InvalidTensor when the bytes are no encoding of a tensor of `elements` elements.
    """
    size = entry_bytes(bin_length)
    head = _take(data, 0, STREAM_HEADER_BYTES)
    scale = float(head[:4].view("<f4")[0])
    count = int(head[4:].view("<u4")[0])
    used = STREAM_HEADER_BYTES + size * count
    if used > most_bytes(elements, bin_length):
        raise InvalidTensor(f"{count} entries for a tensor of {elements} elements: the ranks encode differently")
    entries = _take(data, STREAM_HEADER_BYTES, used).view(f"<u{size}").astype(np.int64)
    codes, offsets = entries & 3, entries >> 2
    is_end = codes == _END
    if not np.isfinite(scale) or ((offsets >= bin_length) & ~is_end | (codes == _UNUSED)).any():
        raise InvalidTensor(f"entries of no bin of {bin_length} elements (scale {scale}): the ranks encode differently")
    restarts = np.zeros(count, bool)
    restarts[1:] = ~is_end[1:] & ~is_end[:-1] & (offsets[1:] <= offsets[:-1])
    bins = np.cumsum(np.where(is_end, offsets + 1, restarts))
    values = ~is_end
    indices = bins[values] * bin_length + offsets[values]
    if len(indices) and indices[-1] >= elements:
        raise InvalidTensor(f"element {indices[-1]} of {elements}: the ranks encode differently")
    return Coordinates(scale, indices, np.where(codes[values] == _MINUS, -1, 1).astype(np.int8)), used


class Part(NamedTuple):
    """One tensor among those whose coordinates travel together; the same on all ranks."""

    elements: int
    bin_length: int
    sender: int | None  #: the only rank that sends any, None: every rank does


class RanksCoordinates:
    """What the ranks sent of one tensor: all of them in their order, or the one sender."""

    def __init__(self, elements: int, ranks: list[Coordinates]) -> None:
        self.elements = elements
        self.ranks = ranks

    @cached_property
    def mean(self) -> NDArray[np.float32]:
        """Their mean, float32 [elements]: the same additions in the same order on every rank, so the same bits.

        Added up as float64, so that the mean is finite even where the sum is beyond float32.
        """
        total = np.zeros(self.elements)
        for rank in self.ranks:
            total[rank.indices] += rank.scale * rank.signs
        return (total / len(self.ranks)).astype(np.float32)


class GatheredCoordinates(Gathered):
    """Every rank's coordinates of several tensors, one after the other; the result is a RanksCoordinates of each."""

    def __init__(self, parts: Sequence[Part], own: Sequence[NDArray[np.uint8]], rank: int) -> None:
        """`own`: this rank's encoded coordinates of each part, no bytes where another rank is the sender."""
        self._parts = list(parts)
        capacity = sum(most_bytes(part.elements, part.bin_length) for part in parts)
        super().__init__(np.concatenate(own), capacity, rank, name="coordinates")
        self.layout = f"coordinates[{','.join(f'{e}/{b}/{s}' for e, b, s in self._parts)}]"

    def wrap(self, result: NDArray[Any]) -> list[RanksCoordinates]:
        at = [0] * len(result)
        wrapped = []
        for elements, bin_length, sender in self._parts:
            ranks = []
            for rank in range(len(result)) if sender is None else [sender]:
                sent, used = decode(result[rank, at[rank] :], bin_length, elements)
                ranks.append(sent)
                at[rank] += used
            wrapped.append(RanksCoordinates(elements, ranks))
        return wrapped


def _take(data: NDArray[np.uint8], start: int, stop: int) -> NDArray[np.uint8]:
    part = data[start:stop]
    missing = stop - start - len(part)
    return np.concatenate([part, np.zeros(missing, np.uint8)]) if missing else np.ascontiguousarray(part)
