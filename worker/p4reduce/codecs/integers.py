"""Tensors of integers: int32 as it is, summed modulo 2^32 as numpy's own int32 addition is, and small ones in lanes.

Lanes are several integers in one word, packed so that sums of words pack the sums: word = Σ t_k · 2^(w·k) mod 2^32. A
negative lane borrows from the next one, and adding the bias 2^(w-1) to every lane of the final sum undoes all borrows
at once, so any number of words can be added first and decoded once. A word of zeros stays zero, so empty blocks are
still skipped.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs.arrays import Tensor, as_kind_of, name_element, to_numpy
from p4reduce.codecs.summed_tensor import SummedTensor
from p4reduce.errors import InvalidTensorError, LaneOverflowError
from p4reduce.protocol.blocks import NO_WORDS, Array, Blocks, Part, nonzero_blocks
from p4reduce_contracts.wire.calls import CodecId
from p4reduce_contracts.wire.lanes import check_lanes, check_width, lane_limit, lanes_per_word, largest_word

_CHUNK_WORDS = 1 << 16
"""Words that are unpacked at once, so that they stay in a cache while each lane is."""


class Int32(SummedTensor):
    """A tensor of int32. The sum wraps modulo 2^32, and is written to `out`, where there is one."""

    codec = CodecId.INT32
    detail = 0

    def __init__(self, values: Tensor, *, name: str | None = None, out: Tensor | None = None) -> None:
        super().__init__(values, name, out)
        if self.values.dtype != np.int32:
            raise InvalidTensorError(f"{name or 'the tensor'} is {self.values.dtype}; convert it to int32")
        self.elements = self.values.size
        self.layout = f"int32[{self.elements}]"

    @property
    def alike(self) -> Hashable:
        return self.layout, self.values.shape

    def bind(self, world_size: int, block_words: int, dense: bool) -> Blocks:
        self._dense, blocks = dense, -(-self.elements // block_words)
        self._part = Part(NO_WORDS, block_words, np.empty(blocks, np.bool_), np.zeros(blocks, np.uint8), self._finish)
        self._scan()
        return Blocks([self._part])

    def _scan(self) -> None:
        part = self._part
        part.values = self.values.reshape(-1).view(np.uint32)
        part.nonzero[:] = self._dense or nonzero_blocks(part.values, part.block_words)

    def _finish(self, part: Part, sums: NDArray[np.uint32], exponents: NDArray[np.uint8]) -> Tensor:
        total = sums[: self.elements].view(np.int32).reshape(self.values.shape)
        return as_kind_of(self._given, total) if self._output is None else self._output.write(total)


def pack_lanes(values: Array, bits: int) -> NDArray[np.uint32]:
    """Words of a flat array of integers: element i is lane i mod k of word i // k."""
    per_word = lanes_per_word(bits)
    words = np.zeros(-(-len(values) // per_word), np.uint32)
    for lane in range(per_word):
        part = values[lane::per_word].astype(np.uint32)
        words[: len(part)] += part << np.uint32(bits * lane)
    return words


def unpack_lanes(words: NDArray[np.uint32], bits: int, count: int) -> NDArray[np.int32]:
    """The first `count` lanes of (summed) words, as signed integers."""
    per_word = lanes_per_word(bits)
    half = 1 << bits - 1
    bias = np.uint32(sum(half << bits * lane for lane in range(per_word)))
    out = np.empty((len(words), per_word), np.int32)
    for start in range(0, len(words), _CHUNK_WORDS):
        biased = words[start : start + _CHUNK_WORDS] + bias
        for lane in range(per_word):
            lanes = biased >> np.uint32(bits * lane) & np.uint32((1 << bits) - 1)
            sums = (lanes - np.uint32(half)).view(np.int32)  # modulo 2^32: 2^31 is no int32
            out[start : start + _CHUNK_WORDS, lane] = sums
    return out.reshape(-1)[:count]


class Lanes:
    """A tensor of small integers, `bits` of a word each. The sums come back as int32.

    `bound` is the largest |t| any rank may hold, the same number on all ranks (default: this rank's own largest, which
    may differ from other ranks'). LaneOverflowError is raised before anything is sent if a value exceeds it or if world
    size x bound does not fit.
    """

    codec = CodecId.LANES

    def __init__(self, values: Tensor, bits: int, *, bound: int | None = None, name: str | None = None) -> None:
        check_width(bits)
        self._given = values
        self.values = to_numpy(values, name or "the tensor")
        if self.values.dtype.kind != "i":
            raise InvalidTensorError(f"{name or 'the tensor'} is {self.values.dtype}; lanes hold signed integers")
        self._bound = bound
        self._name = name
        self.detail = bits
        self.elements = self.values.size
        self.layout = f"lanes{bits}[{self.elements}]{'' if bound is None else f' of up to {bound}'}"

    def bind(self, world_size: int, block_words: int, dense: bool) -> Blocks:
        flat = self.values.reshape(-1)
        low, high = int(flat.min(initial=0)), int(flat.max(initial=0))
        largest = max(-low, high)
        if self._bound is not None and largest > self._bound:
            worst = int(flat.argmin() if -low > high else flat.argmax())
            where = name_element(self._name, self.values.shape, worst)
            raise LaneOverflowError(f"{where} is {flat[worst]}, beyond the stated bound {self._bound}")
        bound = largest if self._bound is None else self._bound
        check_lanes(world_size, bound, self.detail, self._name or "the tensor")
        # This rank's own largest does not bound the sum: other ranks' may be larger.
        most = lane_limit(self.detail) if self._bound is None else world_size * self._bound
        largest_sum = largest_word(self.detail, most)
        words = pack_lanes(flat, self.detail)
        nonzero = np.ones(-(-len(words) // block_words), bool) if dense else nonzero_blocks(words, block_words)
        exponents = np.zeros(len(nonzero), np.uint8)
        return Blocks([Part(words, block_words, nonzero, exponents, self._finish, largest_sum=largest_sum)])

    def _finish(self, part: Part, sums: NDArray[np.uint32], exponents: NDArray[np.uint8]) -> Tensor:
        total = unpack_lanes(sums[: len(part.values)], self.detail, self.elements)
        return as_kind_of(self._given, total.reshape(self.values.shape))
