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
from functools import cache, cached_property
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs.raw import Gathered
from p4reduce.errors import InvalidTensorError
from p4reduce_runtime import kernels

SHORT_BIN = 64
"""Bins of fewer elements take 8 bits an element, others 16."""
LONGEST_BIN = 16 * 1024
STREAM_HEADER_BYTES = 8
_MINUS, _UNUSED, _END = 1, 2, 3
_AT_ONCE = 4096
"""Elements whose sums are made at once: their float64 stay in the processor's cache."""


@cache
def compiled() -> ModuleType | None:
    """The kernels, compiled if need be; None where there are none. The Python beside each call is what counts."""
    return kernels.load("p4reduce.codecs.coordinates_kernels")


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
    module = compiled()
    entries = _encode(coordinates, bin_length) if module is None else _encode_compiled(module, coordinates, bin_length)
    header = np.array([coordinates.scale], "<f4").tobytes() + np.array([len(entries)], "<u4").tobytes()
    return np.frombuffer(header + entries.astype(f"<u{size}").tobytes(), np.uint8)


def _encode_compiled(module: ModuleType, coordinates: Coordinates, bin_length: int) -> NDArray[np.uint16]:
    _, indices, signs = coordinates
    passed_at_once = _passed_at_once(bin_length)
    ends = len(indices) + int(indices.max(initial=0)) // (bin_length * passed_at_once)  # at most
    entries = np.empty(len(indices) + ends, np.uint16)
    own = np.ascontiguousarray(indices, np.int64), np.ascontiguousarray(signs, np.int8)
    count: int = module.encode(*own, bin_length, passed_at_once, entries)
    return entries[:count]


def _encode(coordinates: Coordinates, bin_length: int) -> NDArray[np.int64]:
    passed_at_once = _passed_at_once(bin_length)
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
    return entries


def _passed_at_once(bin_length: int) -> int:
    """The most bins that an end-of-bin entry passes."""
    return 1 << 8 * entry_bytes(bin_length) - 2


def decode(data: NDArray[np.uint8], bin_length: int, elements: int) -> tuple[Coordinates, int]:
    """(coordinates, bytes used) of the tensor at the start of `data`; bytes that are not there read as 0.

    InvalidTensorError when the bytes are no encoding of a tensor of `elements` elements.
    """
    size = entry_bytes(bin_length)
    head = _take(data, 0, STREAM_HEADER_BYTES)
    scale = float(head[:4].view("<f4")[0])
    count = int(head[4:].view("<u4")[0])
    used = STREAM_HEADER_BYTES + size * count
    if used > most_bytes(elements, bin_length):
        raise InvalidTensorError(f"{count} entries for a tensor of {elements} elements: the ranks encode differently")
    entries = _take(data, STREAM_HEADER_BYTES, used).view(f"<u{size}")
    return Coordinates(scale, *_decode(entries.astype(np.int64), scale, bin_length, elements)), used


def _decode(
    entries: NDArray[np.int64], scale: float, bin_length: int, elements: int
) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """(indices, signs). Raises InvalidTensorError as `decode` does."""
    codes, offsets = entries & 3, entries >> 2
    is_end = codes == _END
    if not np.isfinite(scale) or ((offsets >= bin_length) & ~is_end | (codes == _UNUSED)).any():
        raise InvalidTensorError(
            f"entries of no bin of {bin_length} elements (scale {scale}): the ranks encode differently"
        )
    restarts = np.zeros(len(entries), bool)
    restarts[1:] = ~is_end[1:] & ~is_end[:-1] & (offsets[1:] <= offsets[:-1])
    bins = np.cumsum(np.where(is_end, offsets + 1, restarts))
    values = ~is_end
    indices = bins[values] * bin_length + offsets[values]
    if len(indices) and indices[-1] >= elements:
        raise InvalidTensorError(f"element {indices[-1]} of {elements}: the ranks encode differently")
    return indices, np.where(codes[values] == _MINUS, -1, 1).astype(np.int8)


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
        found = self._mean_compiled()
        if found is not None:
            return found
        total = np.zeros(self.elements)
        begin = 0
        for end, scale in zip(self.ends.tolist(), self.scales.tolist(), strict=True):
            total[self.indices[begin:end]] += scale * self.signs[begin:end]
            begin = end
        return (total / len(self.ends)).astype(np.float32)

    def _mean_compiled(self) -> NDArray[np.float32] | None:
        """The same without float64 of all elements; None where there are no kernels, or indices that do not rise."""
        module = compiled()
        if module is None:
            return None
        mean = np.zeros(self.elements, np.float32)
        sums = np.zeros(max(1, min(self.elements, _AT_ONCE)))
        return mean if module.add_mean(self.indices, self.signs, self.ends, self.scales, sums, mean) else None


class GatheredCoordinates(Gathered):
    """Every rank's coordinates of several tensors, one after the other; the result is a RanksCoordinates of each."""

    def __init__(self, parts: Sequence[Part], own: Sequence[NDArray[np.uint8]], rank: int) -> None:
        """`own`: this rank's encoded coordinates of each part, no bytes where another rank is the sender."""
        self._parts = list(parts)
        capacity = sum(most_bytes(part.elements, part.bin_length) for part in parts)
        super().__init__(np.concatenate(own), capacity, rank, name="coordinates")
        self.layout = f"coordinates[{','.join(f'{e}/{b}/{s}' for e, b, s in self._parts)}]"

    def wrap(self, result: NDArray[Any]) -> list[RanksCoordinates]:
        at = np.zeros(len(result), np.int64)
        # enough for the coordinates whose entries are there: each has a byte or more
        room = np.empty(result.size, np.int64), np.empty(result.size, np.int8)
        wrapped = []
        for elements, bin_length, sender in self._parts:
            senders = slice(None) if sender is None else slice(sender, sender + 1)
            found, at[senders], room = _decode_ranks(result[senders], at[senders], bin_length, elements, room)
            wrapped.append(found)
        return wrapped


Room = tuple[NDArray[np.int64], NDArray[np.int8]]


def _decode_ranks(
    data: NDArray[np.uint8], begin: NDArray[np.int64], bin_length: int, elements: int, room: Room
) -> tuple[RanksCoordinates, NDArray[np.int64], Room]:
    """(coordinates, places behind them, room left) of the tensor in each row of `data`, from its place in `begin` on.

    The coordinates take their memory of `room`, but those that go on beyond a row, where bytes read as 0.
    InvalidTensorError as `decode` raises it.
    """
    module = compiled()
    if module is not None:
        end, ends, scales = np.empty_like(begin), np.empty_like(begin), np.empty(len(begin))
        size, most = entry_bytes(bin_length), most_bytes(elements, bin_length)
        count = module.decode(data, begin, end, size, most, bin_length, elements, *room, ends, scales)
        if count >= 0:
            found = RanksCoordinates(elements, room[0][:count], room[1][:count], ends, scales)
            return found, end, (room[0][count:], room[1][count:])
    sent = [decode(row[start:], bin_length, elements) for row, start in zip(data, begin.tolist(), strict=True)]
    used = np.array([used for _, used in sent], np.int64)
    return RanksCoordinates.of(elements, [own for own, _ in sent]), begin + used, room


def _take(data: NDArray[np.uint8], start: int, stop: int) -> NDArray[np.uint8]:
    part = data[start:stop]
    missing = stop - start - len(part)
    return np.concatenate([part, np.zeros(missing, np.uint8)]) if missing else np.ascontiguousarray(part)
