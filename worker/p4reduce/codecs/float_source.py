"""Floating-point tensors as blocks: float32, float16 or bfloat16 in memory; 32, 16 or 8 bits a number on the wire.

    32 bits:       q = rint(x · 2^(m - E))                    m = 30 - L
    16 and 8 bits: q = rint(x · 2^(m - E)), |q| <= 2^m        m = bits - 2 - L

E is the block's exponent: the largest |x| of the block on any rank is below 2^E. L = ceil(log2 N) bits are kept free
for the sum of N ranks. The sum is Σ q · 2^(E - m), rounded once more where memory has 16 bits a number. In 16 and 8
bits a scale is float32, at most 2^127: blocks below 2^(m - 127) count in units of 2^-127. Where 2^E is beyond the type,
|q| <= 2^m - 1. The highest bit of a sum's lane then only repeats its sign, so a flip of it is found (decision 12).
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs.arrays import BFLOAT16, Exponents, address, as_kind_of, exponents_of, name_element, to_numpy
from p4reduce.codecs.output import Output
from p4reduce.errors import InvalidTensorError, LaneOverflowError, NotFiniteError
from p4reduce.protocol import state
from p4reduce.protocol.call import CodecId
from p4reduce.protocol.segments import Segments
from p4reduce.protocol.source import UNTOUCHED, Elements, Words
from p4reduce_contracts.wire.lanes import lanes_per_word, largest_word
from p4reduce_runtime import kernels

FORMS: Final = {np.dtype(np.float32): state.FLOAT32, np.dtype(np.float16): state.FLOAT16, BFLOAT16: state.BFLOAT16}
"""The formats of numbers that are summed."""
_NAMES: Final = {state.FLOAT32: "float32", state.FLOAT16: "float16", state.BFLOAT16: "bfloat16"}
_LARGEST_SCALE: Final = 2.0**127


def headroom_bits(world_size: int) -> int:
    """Return L = ceil(log2 N), the bits kept free so that N integers can be added."""
    return (world_size - 1).bit_length()


def magnitude_bits(bits: int, world_size: int) -> int:
    """Return m: a number becomes at most 2^m units. LaneOverflowError when N ranks leave no unit."""
    found = (30 if bits == 32 else bits - 2) - headroom_bits(world_size)
    if found < 0:
        raise LaneOverflowError(f"lanes of {bits} bits hold no sum of {world_size} rounded floats: use 16 or 32 bits")
    return found


def levels(bits: int, world_size: int) -> int:
    """Return the largest |q| that a rank sends in 8 or 16 bits."""
    return 1 << magnitude_bits(bits, world_size)


@cache
def scales(bits: int, world_size: int) -> NDArray[np.float64]:
    """Return 2^(m - E), what a block is multiplied by, for each exponent field, [256]."""
    found = np.array([2.0 ** (magnitude_bits(bits, world_size) + 126 - field) for field in range(256)])
    return found if bits == 32 else np.minimum(found, _LARGEST_SCALE)


@cache
def units(bits: int, world_size: int, divisor: int) -> NDArray[np.float64]:
    """Return what a sum of integers is multiplied by to become the sum, or its part, for each exponent field, [256]."""
    return 1.0 / (divisor * scales(bits, world_size))


@cache
def largest_sum(bits: int, world_size: int) -> int:
    """Return the largest |sum| of N words. A float32 below 2^E is at most (1 - 2^-24) · 2^E."""
    if bits == 32:
        return world_size * round((1 - 2.0**-24) * (1 << magnitude_bits(bits, world_size)))
    return largest_word(bits, world_size * levels(bits, world_size))


class FloatCodec:
    """What Float32 and FloatLanes have in common: checks, blocks, the place of the result."""

    codec: CodecId
    detail: int

    def __init__(
        self,
        values: Any,
        bits: int,
        mean: bool,
        name: str | None,
        out: Any,
        *,
        seed: int = 0,
        keep_sent: bool = False,
        rest: NDArray[np.float32] | None = None,
        part: tuple[int, int] | None = None,
    ) -> None:
        self._given = values
        self.values = to_numpy(values, name or "the tensor")
        if self.values.dtype not in FORMS:
            raise InvalidTensorError(f"{name or 'the tensor'} is {self.values.dtype}; convert it to float32")
        self._output = None if out is None else Output(out, values, self.values)
        if (keep_sent or rest is not None) and self._output is not None and self._output.in_place:
            raise InvalidTensorError("out is the tensor itself, of which the part that is sent is kept: give another")
        self._bits = bits
        self._mean = mean
        self._name = name
        self._seed = seed
        self._keep_sent = keep_sent
        self._rest = rest
        """Memory, flat, for what this rank does not send of a tensor of float32, once the sum is there."""
        if part is not None and (out is not None or keep_sent or rest is not None):
            raise InvalidTensorError("only a part of the sum is kept: give neither out nor what keeps what is sent")
        if part is not None and not 0 <= part[0] <= part[1] <= self.values.size:
            raise InvalidTensorError(f"part is {part}, no span of the {self.values.size} numbers of the tensor")
        self._part = part
        self.elements = self.values.size

    @property
    def _form(self) -> int:
        return FORMS[self.values.dtype]

    @property
    def _type_name(self) -> str:
        """The numbers' type, for layouts."""
        return _NAMES[self._form]

    @property
    def _scattered(self) -> str:
        """For layouts: which part a rank keeps is its own affair, but all of them or none keep one."""
        return "" if self._part is None else ", a part on each rank"

    def bind(self, world_size: int, block_words: int, dense: bool) -> FloatSource:
        found = exponents_of(self.values.reshape(-1), block_words * lanes_per_word(self._bits))
        if not found.finite:
            raise NotFiniteError(self._fault())
        if dense and not found.dense:
            found.nonzero[:] = True
            found = found._replace(dense=True)
        return FloatSource(
            self.values,
            self._bits,
            block_words,
            found,
            world_size,
            divisor=world_size if self._mean else 1,
            output=self._output,
            seed=self._seed,
            keep_sent=self._keep_sent,
            rest=self._rest,
            part=self._part,
        )

    def _fault(self) -> str:
        flat = self.values.reshape(-1)
        if self.values.dtype == BFLOAT16:
            flat = (flat.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        finite = np.isfinite(flat)
        index = int(finite.argmin())
        text = f"{name_element(self._name, self.values.shape, index)} is {flat[index]}"
        bad = int(flat.size - finite.sum())
        return f"{text} ({bad} such elements); a sum needs finite numbers, skip this step or clip first"

    def _result(self, total: NDArray[Any]) -> Any:
        return as_kind_of(self._given, total) if self._output is None else self._output.write(total)


class FloatSource:
    """The blocks of one tensor of floats."""

    def __init__(
        self,
        values: NDArray[Any],
        bits: int,
        block_words: int,
        found: Exponents,
        world_size: int,
        *,
        divisor: int,
        output: Output | None,
        seed: int,
        keep_sent: bool,
        rest: NDArray[np.float32] | None,
        part: tuple[int, int] | None,
    ) -> None:
        self._shape, self._dtype = values.shape, values.dtype
        self._block_words = block_words
        self._keep_sent, self._rest = keep_sent, rest
        self._output = output
        self.n_blocks = len(found.largest)
        self.exponents, self.nonzero, self._found = found.largest, found.nonzero, found
        self._scales = scales(bits, world_size)
        direct = output is not None and output.flat is not None and _fills_words(output.flat)
        self.elements = Elements(
            _words_of(values.reshape(-1)),
            lanes=lanes_per_word(bits),
            form=FORMS[values.dtype],
            count=values.size,
            levels=levels(bits, world_size) if bits < 32 else 0,
            seed=seed,
            scales=self._scales,
            units=units(bits, world_size, divisor),
            largest_sum=largest_sum(bits, world_size),
            make_room=self._make_room if direct else None,
            part=part,
        )

    def _make_room(self) -> NDArray[Any]:
        assert self._output is not None and self._output.flat is not None
        room = self._output.flat
        if self._found.dense:
            return room
        numbers = room.view(np.float32 if self.elements.form == state.FLOAT32 else np.uint16)
        if not self._output.in_place:
            numbers.fill(0)
        elif self._found.negative_zeros:
            per_block = self._block_words * self.elements.lanes
            numbers[np.repeat(~self.nonzero, per_block)[: numbers.size]] = 0
        return room

    def encode(self, blocks: NDArray[np.int64], exponents: NDArray[np.uint8]) -> Words:
        from p4reduce.protocol import floats

        words = np.empty((len(blocks), self._block_words), np.uint32)
        weights = np.zeros(self._block_words, np.uint32)
        part = Segments(self, self._block_words)
        table, scaled = kernels.argument(part.table), self._scales[exponents]
        size, spare = self._block_words, self._spare()
        floats.encode_blocks(table, part.elements, blocks.astype(np.int64), scaled, size, weights, spare, words)
        return words.view(">u4")

    def decode(self, sums: Words, exponents: NDArray[np.uint8]) -> list[Any]:
        units = self.elements.units
        assert units is not None
        return self.shaped(self._decoded(sums, exponents, units), exponents)

    def shaped(self, sums: NDArray[np.uint32], exponents: NDArray[np.uint8]) -> list[Any]:
        """Return the sum, or its part, flat, or with `keep_sent` a pair of the sum and what this rank has sent."""
        total = self._numbers(sums)
        if self._rest is not None:
            self.write_sent(exponents, self._rest, rest=True)
        if not self._keep_sent:
            return [total]
        sent = np.zeros(Segments(self, self._block_words).sums_words, np.uint32)
        self.write_sent(exponents, sent)
        return [(total, self._numbers(sent))]

    def _decoded(self, words: Words, exponents: NDArray[np.uint8], units: NDArray[np.float64]) -> NDArray[np.uint32]:
        """Return the numbers of summed words, as they lie in memory."""
        from p4reduce.protocol import floats

        part = Segments(self, self._block_words)
        room = np.zeros(part.sums_words, np.uint32)
        touched = np.flatnonzero(exponents != UNTOUCHED)
        first, last = part.table[0]["kept_begin"], part.table[0]["kept_end"]
        touched = touched[(first <= touched) & (touched < last)]
        in_order = np.ascontiguousarray(words.astype(words.dtype.newbyteorder(">"), copy=False)).view(np.uint32)
        table, size, spare = kernels.argument(part.table), self._block_words, self._spare()
        floats.decode_blocks(table, in_order, touched, units[exponents[touched]], size, spare, room)
        return room

    def write_sent(self, exponents: NDArray[np.uint8], into: NDArray[Any], *, rest: bool = False) -> None:
        """Write what this rank has sent of each number, as it lies in memory, or the `rest` of it.

        `into`: words, or for the rest float32. Each block is encoded and decoded, one after the other.
        """
        from p4reduce.protocol import floats

        part = Segments(self, self._block_words)
        touched = np.flatnonzero(exponents != UNTOUCHED)
        if len(touched) < self.n_blocks:
            into.fill(0)
        scaled, words = self._scales[exponents[touched]], np.zeros((2, self._block_words), np.uint32)
        table, size, spare = kernels.argument(part.table), self._block_words, self._spare()
        kernel = floats.subtract_rounded_blocks if rest else floats.round_blocks
        kernel(table, part.elements, touched, scaled, 1.0 / scaled, size, words, spare, into)

    def _spare(self) -> NDArray[np.float32]:
        return np.empty(self._block_words * self.elements.lanes, np.float32)

    def _numbers(self, sums: NDArray[np.uint32]) -> NDArray[Any]:
        numbers: NDArray[Any] = sums.view(self._dtype)
        if self.elements.part is None:
            return numbers[: self.elements.count].reshape(self._shape)
        begin, end = self.elements.part
        before = begin % (self._block_words * self.elements.lanes)
        return numbers[before : before + end - begin]


def _fills_words(flat: NDArray[Any]) -> bool:
    """Return whether numbers begin and end where words do."""
    return flat.nbytes % 4 == 0 and address(flat) % 4 == 0


def _words_of(flat: NDArray[Any]) -> NDArray[np.uint32]:
    """Return the words that numbers lie in, or of a copy, where they do not fill these."""
    if _fills_words(flat):
        return flat.view(np.uint32)
    padded = np.zeros(-(-flat.nbytes // 4), np.uint32)
    padded.view(np.uint16)[: flat.size] = flat.view(np.uint16)
    return padded
