"""Coordinates: the few elements AdaComp selects, as small unsigned integers; the encoding of the gather form.

Source: Chen et al., "AdaComp", AAAI 2018, which gives an element 8 bits in bins of fewer than 64 elements (6 bits of
offset in the bin, 2 bits of value) and 16 bits (14 + 2) in bins of up to 16 K, and each tensor one float32 scale.
How the paper marks the end of a bin could not be read here (unverified); this is ours:

    entry  =  offset << 2 | code        code 0: +scale, 1: -scale, 3: end of bin
    an offset that is not above the one before it begins the next bin
    an end-of-bin entry is only there where that rule is not enough; it passes offset + 1 bins at once

A tensor's bytes are its scale (float32), the number of its entries (uint32) and the entries, little-endian.
Empty bins are common in real gradients (a fifth to a half of them), full stops between full bins are rare: a Gaussian
tensor needs an end-of-bin entry for about one bin in forty.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs.raw import Gathered
from p4reduce.errors import InvalidTensorError

SHORT_BIN = 64
"""Bins of fewer elements take 8 bits an element, others 16."""
LONGEST_BIN = 16 * 1024
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


def entry_bytes(bin_length: int) -> int:
    """Bytes of one entry: 1 or 2."""
    return 1 if bin_length < SHORT_BIN else 2


def most_bytes(elements: int, bin_length: int) -> int:
    """The longest encoding of a tensor: every element selected, and every bin ended."""
    return STREAM_HEADER_BYTES + entry_bytes(bin_length) * (elements + -(-elements // bin_length))


def encode(coordinates: Coordinates, bin_length: int) -> NDArray[np.uint8]:
    """The bytes of a tensor's coordinates."""
    import p4reduce.codecs.coordinates_kernels as kernels

    size = entry_bytes(bin_length)
    passed_at_once = 1 << 8 * size - 2  # bins that one end-of-bin entry passes, at most
    indices = np.ascontiguousarray(coordinates.indices, np.int64)
    signs = np.ascontiguousarray(coordinates.signs, np.int8)
    ends = len(indices) + int(indices.max(initial=0)) // (bin_length * passed_at_once)  # at most
    entries = np.empty(len(indices) + ends, np.uint16)
    count = kernels.encode(indices, signs, bin_length, passed_at_once, entries)
    header = np.array([coordinates.scale], "<f4").tobytes() + np.array([count], "<u4").tobytes()
    return np.frombuffer(header + entries[:count].astype(f"<u{size}").tobytes(), np.uint8)


def decode(data: NDArray[np.uint8], bin_length: int, elements: int) -> tuple[Coordinates, int]:
    """(coordinates, bytes used) of the tensor at the start of `data`; bytes that are not there read as 0.

    InvalidTensorError when the bytes are no encoding of a tensor of `elements` elements.
    """
    found, end = _decode_ranks(np.ascontiguousarray(data)[None], np.zeros(1, np.int64), bin_length, elements)
    return Coordinates(float(found.scales[0]), found.indices, found.signs), int(end[0])


class Part(NamedTuple):
    """One tensor among those whose coordinates travel together; the same on all ranks."""

    elements: int
    bin_length: int
    sender: int | None  #: the only rank that sends any, None: every rank does


class RanksCoordinates:
    """What the ranks sent of one tensor: all of them in their order, or the one sender.

    `indices` and `signs` are those of all ranks, one after the other, each up to its place in `ends`, [ranks], and with
    its own of `scales`, float64 [ranks].
    """

    def __init__(
        self,
        elements: int,
        indices: NDArray[np.int64],
        signs: NDArray[np.int8],
        ends: NDArray[np.int64],
        scales: NDArray[np.float64],
    ) -> None:
        self.elements = elements
        self.indices, self.signs, self.ends, self.scales = indices, signs, ends, scales

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
        import p4reduce.codecs.coordinates_kernels as kernels

        mean = np.zeros(self.elements, np.float32)
        sums = np.zeros(max(1, min(self.elements, _AT_ONCE)))
        if not kernels.add_mean(self.indices, self.signs, self.ends, self.scales, sums, mean):
            raise InvalidTensorError(f"coordinates that do not rise, or beyond {self.elements} elements; give others")
        return mean


class GatheredCoordinates(Gathered):
    """Every rank's coordinates of several tensors, one after the other; the result is a RanksCoordinates of each."""

    def __init__(self, parts: Sequence[Part], own: Sequence[NDArray[np.uint8]], rank: int) -> None:
        """`own`: this rank's encoded coordinates of each part, no bytes where another rank is the sender."""
        self._parts = list(parts)
        capacity = sum(most_bytes(part.elements, part.bin_length) for part in parts)
        super().__init__(np.concatenate(own), capacity, rank, name="coordinates")
        self.layout = f"coordinates[{','.join(f'{e}/{b}/{s}' for e, b, s in self._parts)}]"

    def wrap(self, result: NDArray[np.uint8]) -> list[RanksCoordinates]:
        at = np.zeros(len(result), np.int64)
        wrapped = []
        for elements, bin_length, sender in self._parts:
            senders = slice(None) if sender is None else slice(sender, sender + 1)
            found, at[senders] = _decode_ranks(result[senders], at[senders], bin_length, elements)
            wrapped.append(found)
        return wrapped


def _decode_ranks(
    data: NDArray[np.uint8], begin: NDArray[np.int64], bin_length: int, elements: int
) -> tuple[RanksCoordinates, NDArray[np.int64]]:
    """(coordinates, places behind them) of the tensor in each row of `data`, from its place in `begin` on.

    InvalidTensorError as `decode` raises it.
    """
    import p4reduce.codecs.coordinates_kernels as kernels

    ranks, size, most = len(begin), entry_bytes(bin_length), most_bytes(elements, bin_length)
    scales, counts, end, ends = np.empty(ranks), *np.empty((3, ranks), np.int64)
    entries, longest = kernels.read_headers(data, begin, size, most, scales, counts, end)
    if entries < 0:
        raise InvalidTensorError(
            f"{counts[longest]} entries for a tensor of {elements} elements (scale {scales[longest]}): "
            "the ranks encode differently"
        )
    if longest > data.shape[1]:  # zeros at the end are not sent
        data = np.pad(data, ((0, 0), (0, longest - data.shape[1])))
    indices, signs = np.empty(entries, np.int64), np.empty(entries, np.int8)
    bad = kernels.decode(data, begin, counts, size, bin_length, elements, indices, signs, ends)
    if bad == kernels.NO_ELEMENT:
        raise InvalidTensorError(f"entries of no bin of {bin_length} elements: the ranks encode differently")
    if bad >= 0:
        raise InvalidTensorError(f"element {bad} of {elements}: the ranks encode differently")
    return RanksCoordinates(elements, indices[: ends[-1]], signs[: ends[-1]], ends, scales), end
