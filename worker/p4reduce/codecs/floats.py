"""Tensors of floating-point numbers, each sent in 32, 16 or 8 bits of a word (formats.py)."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs.arrays import BFLOAT16, Exponents, address, as_kind_of, exponents_of, name_element, to_numpy
from p4reduce.codecs.formats import FORMS, check_bits, default_bits, largest_sum, levels, scales, units
from p4reduce.codecs.output import Output
from p4reduce.errors import InvalidTensorError, NotFiniteError
from p4reduce.protocol import state
from p4reduce.protocol.call import CodecId
from p4reduce.protocol.segments import Segments
from p4reduce.protocol.source import UNTOUCHED, Elements, Words
from p4reduce_contracts.wire.lanes import lanes_per_word
from p4reduce_runtime import kernels

_NAMES: Final = {state.FLOAT32: "float32", state.FLOAT16: "float16", state.BFLOAT16: "bfloat16"}


class Summed(NamedTuple):
    """What came of a tensor: the sum (or mean) over all ranks, and this rank's own part as it was sent."""

    total: Any
    sent: Any


class Floats:
    """A tensor of float32, float16 or bfloat16. The sum is of the tensor's type, rounded once.

    `bits`, 32, 16 or 8: of a number on the way; default: 32 for float32, else 16. A block of W words holds
    W · 32 / bits numbers. NaN and infinity are refused (NotFiniteError) before anything is sent.

    With `mean` the result is the sum divided by the number of ranks. It is written to `out`, where there is one. With
    `keep_sent` it is a `Summed`: too much is lost in 8 bits, so a compressor keeps the difference for the next step.
    With `part`, the begin and end of a span of the flattened tensor, the result is that of these numbers alone, flat:
    each rank may have another part.
    """

    def __init__(
        self,
        values: Any,
        bits: int | None = None,
        *,
        mean: bool = False,
        name: str | None = None,
        out: Any = None,
        keep_sent: bool = False,
        part: tuple[int, int] | None = None,
    ) -> None:
        """Raises InvalidTensorError for other types and bits, and an `out` that cannot hold the result."""
        check_bits(bits)
        self._given = values
        self.values = to_numpy(values, name or "the tensor")
        if self.values.dtype not in FORMS:
            raise InvalidTensorError(f"{name or 'the tensor'} is {self.values.dtype}; convert it to float32")
        self._output = None if out is None else Output(out, values, self.values)
        if keep_sent and self._output is not None and self._output.in_place:
            raise InvalidTensorError("out is the tensor itself, of which the part that is sent is kept: give another")
        if part is not None and (out is not None or keep_sent):
            raise InvalidTensorError("only a part of the sum is kept: give neither out nor what keeps what is sent")
        if part is not None and not 0 <= part[0] <= part[1] <= self.values.size:
            raise InvalidTensorError(f"part is {part}, no span of the {self.values.size} numbers of the tensor")
        self._bits = bits = bits or default_bits(self.values.dtype)
        self._mean, self._name, self._keep_sent, self._part = mean, name, keep_sent, part
        self.elements = self.values.size
        self.codec, self.detail = (CodecId.FLOAT32, 0) if bits == 32 else (CodecId.LANES, bits)
        kind = _NAMES[FORMS[self.values.dtype]] + ("" if bits == 32 else f" in lanes of {bits}")
        # Which part a rank keeps is its own affair, but all of them or none keep one.
        scattered = "" if part is None else ", a part on each rank"
        self.layout = f"{'mean of ' if mean else ''}{kind}[{self.elements}]{scattered}"

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
            keep_sent=self._keep_sent,
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

    def wrap(self, result: Any) -> Any:
        if self._keep_sent:
            return Summed(self._placed(result[0]), as_kind_of(self._given, result[1]))
        return self._placed(result)

    def _placed(self, total: NDArray[Any]) -> Any:
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
        keep_sent: bool,
        part: tuple[int, int] | None,
    ) -> None:
        self._shape, self._dtype = values.shape, values.dtype
        self._block_words = block_words
        self._keep_sent = keep_sent
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

    def write_sent(self, exponents: NDArray[np.uint8], into: NDArray[np.uint32]) -> None:
        """Write what this rank has sent of each number, as it lies in memory, into zeros.

        Each block is encoded and decoded, one after the other.
        """
        from p4reduce.protocol import floats

        part = Segments(self, self._block_words)
        touched = np.flatnonzero(exponents != UNTOUCHED)
        scaled, words = self._scales[exponents[touched]], np.zeros((2, self._block_words), np.uint32)
        table, size, spare = kernels.argument(part.table), self._block_words, self._spare()
        floats.round_blocks(table, part.elements, touched, scaled, 1.0 / scaled, size, words, spare, into)

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
