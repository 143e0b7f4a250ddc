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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs.raw import Gathered
from p4reduce.errors import InvalidTensorError

STREAM_HEADER_BYTES = 8
_AT_ONCE = 4096
"""Elements whose sums are made at once: their float64 stay in the processor's cache."""


def load_kernels() -> None:
    """Load the kernels. The first time on a machine they are compiled, which takes seconds."""
    import p4reduce.codecs.coordinates_kernels  # noqa: F401


class Coordinates(NamedTuple):
    """What one rank sends of one tensor: `scale` times -1 or 1 at each of `indices`."""

    scale: float
    indices: NDArray[np.int64]  #: rising
    signs: NDArray[np.int8]  #: -1 or 1, as many


def published_bits(bin_length: int) -> int:
    """Bits of an element in AdaComp's own encoding, as the effective rate counts them: 16 in bins of 64 or more."""
    return 8 if bin_length < 64 else 16


def most_bytes(elements: int) -> int:
    """The longest encoding of a tensor: an entry takes no more bytes than it passes elements."""
    return STREAM_HEADER_BYTES + elements


def encode(coordinates: Coordinates) -> NDArray[np.uint8]:
    """The bytes of a tensor's coordinates."""
    indices = np.ascontiguousarray(coordinates.indices, np.int64)
    signs = np.ascontiguousarray(coordinates.signs, np.int8)
    return encode_all(indices, signs, np.array([len(indices)]), np.array([coordinates.scale], np.float32))[0]


def encode_all(
    indices: NDArray[np.int64], signs: NDArray[np.int8], ends: NDArray[np.int64], scales: NDArray[np.float32]
) -> list[NDArray[np.uint8]]:
    """The bytes of the coordinates of each of several tensors.

    `indices` and `signs` are those of all tensors, one after the other, each up to its place in `ends`, with its own of
    `scales`.
    """
    import p4reduce.codecs.coordinates_kernels as kernels

    chosen = np.diff(ends, prepend=0)
    last = indices[np.maximum(ends - 1, 0)] if len(indices) else np.zeros(len(ends), np.int64)
    passed = np.where(chosen > 0, last, 0) // kernels.LONG_GAPS
    data = np.empty(int((STREAM_HEADER_BYTES + 2 * chosen + passed).sum()), np.uint8)
    data_ends = np.empty(len(ends), np.int64)
    kernels.encode_all(indices, signs, ends, scales.view(np.uint32), data, data_ends)
    edges = [0, *data_ends.tolist()]
    return [data[begin:end] for begin, end in pairwise(edges)]


def decode(data: NDArray[np.uint8], elements: int) -> tuple[Coordinates, int]:
    """(coordinates, bytes used) of the tensor at the start of `data`; bytes that are not there read as 0.

    InvalidTensorError when the bytes are no encoding of a tensor of `elements` elements.
    """
    (found,), end = _decode_ranks(np.ascontiguousarray(data)[None], [Part(elements, None)])
    return Coordinates(float(found.scales[0]), found.indices, found.signs), int(end[0])


class Part(NamedTuple):
    """One tensor among those whose coordinates travel together; the same on all ranks."""

    elements: int
    sender: int | None  #: the only rank that sends any, None: every rank does


@dataclass(frozen=True, eq=False)
class RanksCoordinates:
    """What the ranks sent of one tensor: all of them in their order, or the one sender."""

    elements: int
    indices: NDArray[np.int64]  #: of all ranks, one after the other
    signs: NDArray[np.int8]  #: as many
    ends: NDArray[np.int64]  #: [ranks]: where each one's end
    scales: NDArray[np.float64]  #: [ranks]

    @staticmethod
    def of(elements: int, ranks: Sequence[Coordinates]) -> RanksCoordinates:
        """Join what one rank or more sent."""
        return RanksCoordinates(
            elements,
            np.concatenate([rank.indices for rank in ranks], dtype=np.int64),
            np.concatenate([rank.signs for rank in ranks], dtype=np.int8),
            np.cumsum([len(rank.indices) for rank in ranks]),
            np.array([rank.scale for rank in ranks]),
        )

    @cached_property
    def mean(self) -> NDArray[np.float32]:
        """Their mean, float32 [elements]: the same additions in the same order on every rank, so the same bits.

        Added up as float64, so that the mean is finite even where the sum is beyond float32.
        """
        return join([self]).means()[0]


class JoinedCoordinates(NamedTuple):
    """What as many ranks sent of each of several tensors."""

    elements: NDArray[np.int64]  #: [tensors]
    indices: NDArray[np.int64]  #: one tensor after the other, each as in RanksCoordinates
    signs: NDArray[np.int8]  #: as many
    tensor_ends: NDArray[np.int64]  #: [tensors]: where each tensor's end
    ends: NDArray[np.int64]  #: [tensors, ranks]: where each rank's end, counted from the tensor's first
    scales: NDArray[np.float64]  #: [tensors, ranks]

    def means(self) -> list[NDArray[np.float32]]:
        """Return the mean of each tensor, as RanksCoordinates has it: parts of one array, one after the other."""
        import p4reduce.codecs.coordinates_kernels as kernels

        elements, indices, signs, tensor_ends, ends, scales = self
        mean = np.zeros(int(elements.sum()), np.float32)
        sums = np.zeros(max(1, min(int(elements.max()), _AT_ONCE)))
        if not kernels.add_mean(indices, signs, ends, tensor_ends, scales, elements, sums, mean):
            most = int(elements.max())
            raise InvalidTensorError(f"coordinates that do not rise, or beyond {most} elements; give others")
        edges = [0, *np.cumsum(elements).tolist()]
        return [mean[begin:end] for begin, end in pairwise(edges)]


def join(tensors: Sequence[RanksCoordinates]) -> JoinedCoordinates:
    """Join one tensor or more."""
    return JoinedCoordinates(
        np.array([tensor.elements for tensor in tensors]),
        np.concatenate([tensor.indices for tensor in tensors]),
        np.concatenate([tensor.signs for tensor in tensors]),
        np.cumsum([len(tensor.indices) for tensor in tensors]),
        np.stack([tensor.ends for tensor in tensors]),
        np.stack([tensor.scales for tensor in tensors]),
    )


class GatheredCoordinates(Gathered):
    """Every rank's coordinates of several tensors, one after the other; the result is a RanksCoordinates of each."""

    def __init__(self, parts: Sequence[Part], own: Sequence[NDArray[np.uint8]], rank: int) -> None:
        """`own`: this rank's encoded coordinates of each part, no bytes where another rank is the sender."""
        self._parts = list(parts)
        capacity = sum(most_bytes(part.elements) for part in parts)
        super().__init__(np.concatenate(own), capacity, rank, name="coordinates")
        self.layout = f"coordinates[{','.join(f'{e}/{s}' for e, s in self._parts)}]"

    def finish(self, rows: NDArray[np.uint8]) -> list[RanksCoordinates]:
        return _decode_ranks(rows, self._parts)[0]


def _decode_ranks(data: NDArray[np.uint8], parts: Sequence[Part]) -> tuple[list[RanksCoordinates], NDArray[np.int64]]:
    """(coordinates of each tensor, places behind the last) of the tensors that lie one after the other in each row.

    InvalidTensorError as `decode` raises it.
    """
    import p4reduce.codecs.coordinates_kernels as kernels

    ranks = len(data)
    rows = [(elements, -1 if sender is None else sender) for elements, sender in parts]
    table = np.array(rows, np.int64).reshape(-1, 2)
    scales = np.zeros((len(parts), ranks))
    begin, counts, end, ends = np.zeros((4, len(parts), ranks), np.int64)
    entries, longest, bad_part = kernels.read_headers(data, table, begin, scales, counts, end)
    if entries < 0:
        raise InvalidTensorError(
            f"{counts[bad_part, longest]} bytes of entries for a tensor of {parts[bad_part].elements} elements "
            f"(scale {scales[bad_part, longest]}): the ranks encode differently"
        )
    if longest > data.shape[1]:  # zeros at the end are not sent
        data = np.pad(data, ((0, 0), (0, longest - data.shape[1])))
    indices, signs = np.empty(entries, np.int64), np.empty(entries, np.int8)
    tensor_ends = np.empty(len(parts), np.int64)
    bad, bad_part = kernels.decode(data, table, begin, counts, indices, signs, ends, tensor_ends)
    if bad == kernels.NO_ELEMENT:
        raise InvalidTensorError("bytes that are no entry: the ranks encode differently")
    if bad >= 0:
        raise InvalidTensorError(f"element {bad} of {table[bad_part, 0]}: the ranks encode differently")
    found = []
    first = 0
    for part, last, own_ends, own_scales in zip(parts, tensor_ends.tolist(), ends, scales, strict=True):
        of = slice(None) if part.sender is None else slice(part.sender, part.sender + 1)
        found.append(
            RanksCoordinates(part.elements, indices[first:last], signs[first:last], own_ends[of], own_scales[of])
        )
        first = last
    return found, end[-1] if parts else np.zeros(ranks, np.int64)
