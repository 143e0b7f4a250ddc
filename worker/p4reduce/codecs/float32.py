"""float32 through integer sums: every block is scaled by a power of two all ranks agree on.

A block whose largest |x| over all ranks has the IEEE exponent field f satisfies |x| < 2^E with
E = f - 126. Each rank sends  q = rint(x · 2^(30 - L - E)),  L = ceil(log2 N).  Then |q| <= 2^(30-L)
and the sum of N ranks stays within ±2^30; one that does not was damaged (`largest_sum`).
The result is float32(sum · 2^(E - 30 + L)).

Error bound: the scaling is exact (a power of two, in float64), each rint is off by at most 1/2,
so before the last rounding to float32 the sum is off by at most  N · 2^(E - 31 + L).  With M the
largest |x| of the block over all ranks (M >= 2^(E-1)) that is at most  N · 2^(L - 30) · M.
A sum beyond float32's range becomes an infinity, as it does in float32 arithmetic; the mean of finite
numbers is finite, because the division by N comes before that last rounding. Only in blocks of denormal
numbers (f = 0) is E larger than needed.
"""

from __future__ import annotations

from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs.arrays import Exponents, Tensor, as_kind_of, blocks_of, exponents_of, name_element, to_numpy
from p4reduce.codecs.output import Output
from p4reduce.errors import InvalidTensorError, NotFiniteError
from p4reduce.protocol.call import CodecId
from p4reduce.protocol.source import UNTOUCHED, Array, Elements, Words

_CHUNK_BLOCKS = 1 << 15
"""Blocks decoded at once, so that the float64 intermediate stays small."""


def headroom_bits(world_size: int) -> int:
    """L = ceil(log2 N): bits kept free so that N integers can be added."""
    return (world_size - 1).bit_length()


def scale_of(exponent_field: int, world_size: int) -> float:
    """2^(30 - L - E), what a block with this exponent field is multiplied by."""
    return 2.0 ** (30 - headroom_bits(world_size) - (exponent_field - 126))


@cache
def scales(world_size: int) -> NDArray[np.float64]:
    """`scale_of` every exponent field, [256]."""
    return np.array([scale_of(field, world_size) for field in range(256)])


def largest_sum(world_size: int) -> int:
    """Return the largest |sum| of N words. A float32 below 2^E is at most (1 - 2^-24) · 2^E."""
    return world_size * round((1 - 2.0**-24) * (1 << 30 - headroom_bits(world_size)))


def error_bound(exponent_field: int, world_size: int) -> float:
    """How far a sum can be off before its last rounding to float32: N · 2^(E - 31 + L)."""
    return world_size / scale_of(exponent_field, world_size) / 2


class Float32:
    """A tensor of float32. NaN and Inf are refused (NotFiniteError) before anything is sent.

    With `mean` the result is the sum divided by the number of ranks. It is written to `out`, where there is one.
    """

    codec = CodecId.FLOAT32
    detail = 0

    def __init__(
        self, values: Tensor, *, mean: bool = False, name: str | None = None, out: Tensor | None = None
    ) -> None:
        self._given = values
        self.values = to_numpy(values, name or "the tensor")
        if self.values.dtype != np.float32:
            raise InvalidTensorError(f"{name or 'the tensor'} is {self.values.dtype}; convert it to float32")
        self._output = None if out is None else Output(out, values, self.values)
        self._mean = mean
        self._name = name
        self.elements = self.values.size
        self.layout = f"{'mean of ' if mean else ''}float32[{self.elements}]"

    def bind(self, world_size: int, block_words: int, dense: bool) -> Float32Source:
        found = exponents_of(self.values.reshape(-1), block_words)
        if found.largest.max(initial=0) == 255:
            raise NotFiniteError(self._fault())
        if dense:
            found.nonzero[:] = True
        divisor = world_size if self._mean else 1
        return Float32Source(self.values, block_words, found, world_size, divisor, self._output)

    def _fault(self) -> str:
        flat = self.values.reshape(-1)
        index = int(np.isfinite(flat).argmin())
        bad = int(flat.size - np.isfinite(flat).sum())
        text = f"{name_element(self._name, self.values.shape, index)} is {flat[index]}"
        return f"{text} ({bad} such elements); a sum needs finite numbers, skip this step or clip first"

    def wrap(self, result: Array) -> Tensor:
        return as_kind_of(self._given, result) if self._output is None else self._output.write(result)


class Float32Source:
    """The blocks of one float32 tensor."""

    def __init__(
        self,
        values: NDArray[np.float32],
        block_words: int,
        found: Exponents,
        world_size: int,
        divisor: int,
        output: Output | None,
    ) -> None:
        self._values = values
        self._block_words = block_words
        self.n_blocks = len(found.largest)
        self.exponents, self.nonzero, self._negative_zeros = found
        self._output = output
        self._scales = scales(world_size)
        self._units = 1.0 / (divisor * self._scales)
        self.elements = Elements(
            values.reshape(-1),
            lanes=1,
            scales=self._scales,
            units=self._units,
            largest_sum=largest_sum(world_size),
            make_room=None if output is None or output.flat is None else self._make_room,
        )

    @cached_property
    def _rows(self) -> NDArray[np.float32]:
        rows: NDArray[np.float32] = blocks_of(self._values.reshape(-1), self._block_words)
        return rows

    def _make_room(self) -> NDArray[np.float32]:
        assert self._output is not None and self._output.flat is not None
        room = self._output.flat
        if not self._output.in_place:
            if not self.nonzero.all():
                room.fill(0)
        elif self._negative_zeros:
            room[np.repeat(~self.nonzero, self._block_words)[: room.size]] = 0
        return room

    def encode(self, blocks: NDArray[np.int64], exponents: NDArray[np.uint8]) -> Words:
        scaled = self._rows[blocks] * self._scales[exponents, None]
        np.rint(scaled, out=scaled)
        words: Words = scaled.astype(">i4")
        return words

    def decode(self, sums: Words, exponents: NDArray[np.uint8]) -> list[NDArray[np.float32]]:
        out = np.zeros((self.n_blocks, self._block_words), np.float32)
        touched = np.flatnonzero(exponents != UNTOUCHED)
        for start in range(0, len(touched), _CHUNK_BLOCKS):
            rows = touched[start : start + _CHUNK_BLOCKS]
            with np.errstate(over="ignore"):
                out[rows] = sums[rows].astype(np.int32) * self._units[exponents[rows], None]
        return self.shaped(out.reshape(-1))

    def shaped(self, values: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        return [values[: self._values.size].reshape(self._values.shape)]
