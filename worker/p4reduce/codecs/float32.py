"""float32 through integer sums: every block is scaled by a power of two all ranks agree on.

A block whose largest |x| over all ranks has the IEEE exponent field f satisfies |x| < 2^E with
E = f - 126. Each rank sends  q = rint(x · 2^(30 - L - E)),  L = ceil(log2 N).  Then |q| <= 2^(30-L)
and the sum of N ranks stays within ±2^30. The result is float32(sum · 2^(E - 30 + L)).

Error bound: the scaling is exact (a power of two, in float64), each rint is off by at most 1/2,
so before the last rounding to float32 the sum is off by at most  N · 2^(E - 31 + L).  With M the
largest |x| of the block over all ranks (M >= 2^(E-1)) that is at most  N · 2^(L - 30) · M.
A sum beyond float32's range becomes an infinity, as it does in float32 arithmetic; the mean of finite
numbers is finite, because the division by N comes before that last rounding. Only in blocks of denormal
numbers (f = 0) is E larger than needed.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs.arrays import as_kind_of, blocks_of, name_element, to_numpy
from p4reduce.errors import InvalidTensor
from p4reduce.protocol.call import CodecId
from p4reduce.protocol.source import UNTOUCHED, Words

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


def error_bound(exponent_field: int, world_size: int) -> float:
    """How far a sum can be off before its last rounding to float32: N · 2^(E - 31 + L)."""
    return world_size / scale_of(exponent_field, world_size) / 2


class Float32:
    """A tensor of float32. NaN and Inf are refused (InvalidTensor) before anything is sent.

    With `mean` the result is the sum divided by the number of ranks.
    """

    codec = CodecId.FLOAT32
    detail = 0

    def __init__(self, values: Any, *, mean: bool = False, name: str | None = None) -> None:
        self._given = values
        self.values = to_numpy(values, name or "the tensor")
        if self.values.dtype != np.float32:
            raise InvalidTensor(f"{name or 'the tensor'} is {self.values.dtype}; convert it to float32")
        self._mean = mean
        self._name = name
        self.elements = self.values.size
        self.layout = f"{'mean of ' if mean else ''}float32[{self.elements}]"

    def bind(self, world_size: int, block_words: int, dense: bool) -> Float32Source:
        rows = blocks_of(self.values.reshape(-1), block_words)
        largest = (rows.view(np.uint32) & np.uint32(0x7FFFFFFF)).max(axis=1, initial=0)
        fields = (largest >> np.uint32(23)).astype(np.uint8)
        if fields.max(initial=0) == 255:
            raise InvalidTensor(self._fault())
        return Float32Source(
            shape=self.values.shape,
            rows=rows,
            largest=largest,
            fields=fields,
            world_size=world_size,
            dense=dense,
            divisor=world_size if self._mean else 1,
        )

    def _fault(self) -> str:
        flat = self.values.reshape(-1)
        index = int(np.isfinite(flat).argmin())
        bad = int(flat.size - np.isfinite(flat).sum())
        text = f"{name_element(self._name, self.values.shape, index)} is {flat[index]}"
        return f"{text} ({bad} such elements); a sum needs finite numbers, skip this step or clip first"

    def wrap(self, result: NDArray[Any]) -> Any:
        return as_kind_of(self._given, result)


class Float32Source:
    """The blocks of one float32 tensor."""

    def __init__(
        self,
        *,
        shape: tuple[int, ...],
        rows: NDArray[np.float32],
        largest: NDArray[np.uint32],
        fields: NDArray[np.uint8],
        world_size: int,
        dense: bool,
        divisor: int = 1,
    ) -> None:
        self._shape = shape
        self._rows = rows
        self.n_blocks = len(rows)
        self.nonzero: NDArray[np.bool_] = np.ones(len(rows), bool) if dense else largest != 0
        self.exponents: NDArray[np.uint8] = fields
        self._divisor = divisor
        self._scales = scales(world_size)

    def encode(self, blocks: NDArray[np.int64], exponents: NDArray[np.uint8]) -> Words:
        scaled = self._rows[blocks] * self._scales[exponents, None]
        np.rint(scaled, out=scaled)
        words: Words = scaled.astype(">i4")
        return words

    def decode(self, sums: Words, exponents: NDArray[np.uint8]) -> list[NDArray[Any]]:
        out = np.zeros(self._rows.shape, np.float32)
        touched = np.flatnonzero(exponents != UNTOUCHED)
        for start in range(0, len(touched), _CHUNK_BLOCKS):
            rows = touched[start : start + _CHUNK_BLOCKS]
            with np.errstate(over="ignore"):
                out[rows] = sums[rows].view(">i4") * (1.0 / (self._divisor * self._scales[exponents[rows], None]))
        size = int(np.prod(self._shape, dtype=np.int64))
        return [out.reshape(-1)[:size].reshape(self._shape)]
