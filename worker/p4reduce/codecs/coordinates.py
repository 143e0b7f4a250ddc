"""Coordinates: the few elements a rank selects, as gaps between them and signs; the encoding of the gather form.

The encoding is ours: an element costs about a byte in tensors where one of 10 to 100 is chosen. AdaComp's (AAAI 2018)
takes 16 bits in bins of 64 elements or more. A tensor's bytes are its scale (float32), the number of bytes that follow
(uint32), both little-endian, and for each element

    byte  =  f << 1 | minus       minus: 1 for -scale, 0 for +scale; gap: elements passed since the one before
    f from 0 to 119               gap f
    f from 120 to 126             gap 120 + 256 (f - 120) + the next byte, at most 1,911
    f = 127, minus 0              no element: 1,912 elements are passed, before the entry that follows
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs.raw import Gathered
from p4reduce.errors import InvalidTensorError

STREAM_HEADER_BYTES = 8
_AT_ONCE = 4096
"""Elements whose sums are made at once: their float64 stay in the processor's cache."""


class Coordinates(NamedTuple):
    """The elements that one rank sends of several tensors, in order: a tensor's scale times -1 or 1 at each."""

    indices: NDArray[np.int64]  #: elements, counted from their tensor's first, rising for each
    signs: NDArray[np.int8]  #: -1 or 1 for each element
    ends: NDArray[np.int64]  #: [tensors]: the end of each one's elements
    scales: NDArray[np.float32]  #: [tensors]

    @property
    def counts(self) -> NDArray[np.int64]:
        """[tensors]: the number of each one's elements."""
        counts = self.ends.copy()
        counts[1:] -= self.ends[:-1]
        return counts


def published_bits(bin_length: int) -> int:
    """Bits of an element in AdaComp's own encoding, as the effective rate counts them: 16 in bins of 64 or more."""
    return 8 if bin_length < 64 else 16


def most_bytes(elements: int) -> int:
    """The longest encoding of a tensor: an entry takes no more bytes than it passes elements."""
    return STREAM_HEADER_BYTES + elements


def encode(sent: Coordinates) -> list[NDArray[np.uint8]]:
    """The bytes of each tensor's coordinates."""
    import p4reduce.codecs.coordinates_kernels as kernels

    indices, signs, ends, scales = sent
    passed = int(indices.max(initial=0)) // kernels.LONG_GAPS
    data = np.empty(len(ends) * (STREAM_HEADER_BYTES + passed) + 2 * len(indices), np.uint8)  # more than it takes
    data_ends = np.empty(len(ends), np.int64)
    kernels.encode(indices, signs, ends, scales.view(np.uint32), data, data_ends)
    return _parts_of(data, data_ends)


class Part(NamedTuple):
    """One tensor among those whose coordinates travel together; the same on all ranks."""

    elements: int
    sender: int | None  #: the only rank that sends any, None: every rank does


@dataclass(frozen=True, eq=False)
class _Received:
    """The coordinates that the ranks sent of all tensors of a segment, one after the other."""

    table: NDArray[np.int64]  #: [tensors, 2]: elements and sender, -1: every rank
    indices: NDArray[np.int64]  #: elements of a tensor, one rank after the other
    signs: NDArray[np.int8]  #: -1 or 1 for each element
    tensor_ends: NDArray[np.int64]  #: [tensors]: the end of each tensor's elements
    ends: NDArray[np.int64]  #: [tensors, ranks]: the end of each rank's, counted from the tensor's first
    scales: NDArray[np.float64]  #: [tensors, ranks]

    @cached_property
    def means(self) -> list[NDArray[np.float32]]:
        """The mean of each tensor: parts of one array."""
        import p4reduce.codecs.coordinates_kernels as kernels

        elements = self.table[:, 0]
        means = np.empty(int(elements.sum()), np.float32)
        sums = np.zeros(max(1, min(int(elements.max()), _AT_ONCE)))
        kernels.add_means(self.indices, self.signs, self.ends, self.tensor_ends, self.scales, self.table, sums, means)
        return _parts_of(means, np.cumsum(elements))


@dataclass(frozen=True, eq=False)
class RanksCoordinates:
    """The coordinates that the ranks sent of one tensor: of all ranks in their order, or of the one sender."""

    indices: NDArray[np.int64]  #: elements of all ranks, one after the other
    signs: NDArray[np.int8]  #: -1 or 1 for each element
    ends: NDArray[np.int64]  #: [ranks]: the end of each one's elements
    scales: NDArray[np.float64]  #: [ranks]
    _received: _Received
    _number: int

    @property
    def mean(self) -> NDArray[np.float32]:
        """Their mean, float32 [elements]: the same additions in the same order on every rank, so the same bits.

        Added up as float64, so that the mean is finite even where the sum is beyond float32. That of all tensors of a
        segment is computed at once.
        """
        return self._received.means[self._number]


class GatheredCoordinates(Gathered):
    """Every rank's coordinates of several tensors, one after the other; the result is a RanksCoordinates of each."""

    def __init__(self, parts: Sequence[Part], own: Sequence[NDArray[np.uint8]], rank: int) -> None:
        """`own`: this rank's encoded coordinates of each part, no bytes where another rank is the sender."""
        self._parts = list(parts)
        capacity = sum(most_bytes(part.elements) for part in parts)
        super().__init__(np.concatenate(own), capacity, rank, name="coordinates")
        self.layout = f"coordinates[{','.join(f'{e}/{s}' for e, s in self._parts)}]"

    def finish(self, rows: NDArray[np.uint8]) -> list[RanksCoordinates]:
        """Raises InvalidTensorError when a rank's bytes are no encoding of these tensors."""
        import p4reduce.codecs.coordinates_kernels as kernels

        parts, ranks = self._parts, len(rows)
        pairs = [(elements, -1 if sender is None else sender) for elements, sender in parts]
        table = np.array(pairs, np.int64).reshape(-1, 2)
        scales = np.zeros((len(parts), ranks))
        begin, counts, end, ends = np.zeros((4, len(parts), ranks), np.int64)
        entries, longest, bad_part = kernels.read_headers(rows, table, begin, scales, counts, end)
        if entries < 0:
            raise InvalidTensorError(
                f"{counts[bad_part, longest]} bytes of entries for a tensor of {parts[bad_part].elements} elements "
                f"(scale {scales[bad_part, longest]}): the ranks encode differently"
            )
        if longest > rows.shape[1]:  # zeros at the end are not sent
            rows = np.pad(rows, ((0, 0), (0, longest - rows.shape[1])))
        indices, signs = np.empty(entries, np.int64), np.empty(entries, np.int8)
        tensor_ends = np.empty(len(parts), np.int64)
        bad, bad_part = kernels.decode(rows, table, begin, counts, indices, signs, ends, tensor_ends)
        if bad == kernels.NO_ELEMENT:
            raise InvalidTensorError("bytes that are no entry: the ranks encode differently")
        if bad >= 0:
            raise InvalidTensorError(f"element {bad} of {table[bad_part, 0]}: the ranks encode differently")
        received = _Received(table, indices, signs, tensor_ends, ends, scales)
        found, first = [], 0
        for number, last in enumerate(tensor_ends.tolist()):
            sender = parts[number].sender
            of = slice(None) if sender is None else slice(sender, sender + 1)
            own = (indices[first:last], signs[first:last], ends[number, of], scales[number, of])
            found.append(RanksCoordinates(*own, received, number))
            first = last
        return found


def _parts_of(whole: NDArray[Any], ends: NDArray[np.int64]) -> list[NDArray[Any]]:
    return [whole[begin:end] for begin, end in pairwise([0, *ends.tolist()])]
