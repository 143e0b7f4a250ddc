"""float32 in lanes of 8 or 16 bits: as the float32 codec, with fewer bits a number and 4 or 2 numbers a word.

A block of `block_words` words holds block_words · 32 / w numbers. When the largest |x| of the block over all ranks
is below 2^E, each rank sends  q = rint(x · 2^(w - 2 - L - E)),  L = ceil(log2 N), so that |q| <= 2^(w-2-L) and a
lane's sum stays within ±2^(w-2). A number is off by at most half a unit, 2^(E - w + 1 + L): too much to lose, so
the result also contains what this rank really sent, and a compressor keeps the difference for the next step.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs.arrays import Tensor, as_kind_of, blocks_of, exponents_of, name_element, to_numpy
from p4reduce.codecs.float32 import headroom_bits
from p4reduce.codecs.lanes import pack_lanes, unpack_lanes
from p4reduce.errors import InvalidTensorError, LaneOverflowError, NotFiniteError
from p4reduce.protocol.call import CodecId
from p4reduce.protocol.source import UNTOUCHED, Elements, Words
from p4reduce_contracts.wire.lanes import lanes_per_word, largest_word

WIDTHS = (8, 16)
_LARGEST = float(np.finfo(np.float32).max)


class Summed(NamedTuple):
    """What came of a tensor: the sum (or mean) over all ranks, and this rank's own part as it was sent."""

    total: Any
    sent: Any


def levels(bits: int, world_size: int) -> int:
    """The largest |q| a rank sends; LaneOverflowError when N ranks leave none."""
    spare = bits - 2 - headroom_bits(world_size)
    if spare < 0:
        raise LaneOverflowError(f"lanes of {bits} bits hold no sum of {world_size} rounded floats: use 16 or 32 bits")
    return 1 << spare


@cache
def scales(bits: int, world_size: int) -> NDArray[np.float64]:
    """What a block is multiplied by, 2^(w - 2 - L - E), for each exponent field, [256]."""
    return np.array([levels(bits, world_size) * 2.0 ** (126 - field) for field in range(256)])


class FloatLanes:
    """A tensor of float32, each number in `bits` (8 or 16) of a word; the result is a `Summed`."""

    codec = CodecId.LANES

    def __init__(self, values: Tensor, bits: int, *, mean: bool = False, name: str | None = None) -> None:
        """NaN and infinity are refused (InvalidTensorError) before anything is sent, as are other types and widths."""
        if bits not in WIDTHS:
            raise InvalidTensorError(f"floats travel in lanes of 8 or 16 bits, or as float32 in 32, not in {bits}")
        self._given = values
        self._name = name
        self.values = to_numpy(values, name or "the tensor")
        if self.values.dtype != np.float32:
            raise InvalidTensorError(f"{name or 'the tensor'} is {self.values.dtype}; convert it to float32")
        self._mean = mean
        self.detail = bits
        self.elements = self.values.size
        self.layout = f"{'mean of ' if mean else ''}float lanes{bits}[{self.elements}]"

    def bind(self, world_size: int, block_words: int, dense: bool) -> FloatLanesSource:
        flat = self.values.reshape(-1)
        fields, nonzero, _ = exponents_of(flat, block_words * lanes_per_word(self.detail))
        if fields.max(initial=0) == 255:
            index = int(np.isfinite(flat).argmin())
            where = name_element(self._name, self.values.shape, index)
            raise NotFiniteError(f"{where} is {flat[index]}; a sum needs finite numbers, skip this step or clip first")
        if dense:
            nonzero[:] = True
        divisor = world_size if self._mean else 1
        return FloatLanesSource(flat, self.detail, block_words, fields, nonzero, world_size, divisor)

    def wrap(self, result: NDArray[np.float32]) -> Summed:
        total, sent = (as_kind_of(self._given, row.reshape(self.values.shape)) for row in result)
        return Summed(total, sent)


class FloatLanesSource:
    """The blocks of one tensor in float lanes."""

    def __init__(
        self,
        flat: NDArray[np.float32],
        bits: int,
        block_words: int,
        fields: NDArray[np.uint8],
        nonzero: NDArray[np.bool_],
        world_size: int,
        divisor: int,
    ) -> None:
        self._bits = bits
        self._count = len(flat)
        self._divisor = divisor
        self._block_words = block_words
        self._rows = blocks_of(flat, block_words * lanes_per_word(bits))
        self.n_blocks = len(fields)
        self.nonzero = nonzero
        self.exponents = fields
        self._scales = scales(bits, world_size)
        largest_sum = largest_word(bits, world_size * levels(bits, world_size))
        self.elements = Elements(flat, lanes=lanes_per_word(bits), scales=self._scales, largest_sum=largest_sum)

    def encode(self, blocks: NDArray[np.int64], exponents: NDArray[np.uint8]) -> Words:
        integers = self._integers(blocks, exponents)
        words = pack_lanes(integers.reshape(-1), self._bits)
        return words.reshape(len(blocks), self._block_words).astype(">u4")

    def decode(self, sums: Words, exponents: NDArray[np.uint8]) -> list[NDArray[np.float32]]:
        width = self._rows.shape[1]
        out = np.zeros((2, self.n_blocks, width), np.float32)
        touched = np.flatnonzero(exponents != UNTOUCHED)
        if len(touched):
            unit = 1.0 / self._scales[exponents[touched], None]
            words = sums[touched].astype(np.uint32).reshape(-1)
            totals = unpack_lanes(words, self._bits, len(touched) * width).reshape(-1, width)
            # Rounding up may pass float32's largest number, a sum of many ranks too: they stay finite.
            out[0, touched] = np.clip(totals * (unit / self._divisor), -_LARGEST, _LARGEST)
            out[1, touched] = np.clip(self._integers(touched, exponents[touched]) * unit, -_LARGEST, _LARGEST)
        return [out.reshape(2, -1)[:, : self._count]]

    def _integers(self, blocks: NDArray[np.int64], exponents: NDArray[np.uint8]) -> NDArray[np.int32]:
        integers: NDArray[np.int32] = np.rint(self._rows[blocks] * self._scales[exponents, None]).astype(np.int32)
        return integers
