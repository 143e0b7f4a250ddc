"""Tensors of floating-point numbers, each sent in 32, 16 or 8 bits of a word (formats.py)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs.arrays import (
    COUNT_SHIFT,
    NEGATIVE_ZEROS,
    NO_LIMITS,
    NOT_FINITE,
    ZERO_BLOCKS,
    address,
    as_kind_of,
    known_to_numpy,
    name_element,
)
from p4reduce.codecs.formats import (
    FORMS,
    check_bits,
    default_bits,
    largest_sum,
    levels,
    scales,
    underflow_limits,
    units,
)
from p4reduce.codecs.summed_tensor import SummedTensor
from p4reduce.errors import InvalidTensorError, NotFiniteError, UnderflowError
from p4reduce.protocol.blocks import NO_WORDS, Blocks, Part
from p4reduce.protocol.state import FLOAT32, FORMATS
from p4reduce_contracts.wire.calls import CodecId
from p4reduce_contracts.wire.lanes import lanes_per_word

UNDERFLOW_SHARE: Final = 1_000
"""Numbers other than 0 that a tensor has at least for each one that may underflow."""


class Summed(NamedTuple):
    """The results of a tensor: the sum (or mean) over all ranks, and this rank's own part as it was sent."""

    total: Any
    sent: Any


class Floats(SummedTensor):
    """A tensor of float32, float16 or bfloat16. The sum is of the tensor's type, rounded once.

    `bits`, 32, 16 or 8: of a number on the way; default: 32 for float32, else 16. A block of W words holds
    W · 32 / bits numbers. NaN and infinity are refused (NotFiniteError) before anything is sent.

    With `mean` the result is the sum divided by the number of ranks. It is written to `out`, where there is one. With
    `keep_sent` it is a `Summed`: too much is lost in 8 bits, so a compressor keeps the difference for the next step.
    With `part`, the begin and end of a span of the flattened tensor, the result is that of these numbers alone, flat:
    each rank may have another part.

    With `refuse_underflow` float32 in 32 bits is refused too (UnderflowError) where more than one in UNDERFLOW_SHARE of
    its numbers that are not 0 would become 0, by the exponents of this rank's blocks alone.
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
        refuse_underflow: bool = False,
    ) -> None:
        """Raises InvalidTensorError for other types and bits, and an `out` that cannot hold the result."""
        check_bits(bits)
        super().__init__(values, name, out)
        if self.values.dtype not in FORMS:
            raise InvalidTensorError(f"{name or 'the tensor'} is {self.values.dtype}; convert it to float32")
        if keep_sent and self._output is not None and self._output.in_place:
            raise InvalidTensorError("out is the tensor itself, of which the part that is sent is kept: give another")
        if part is not None and (out is not None or keep_sent):
            raise InvalidTensorError("only a part of the sum is kept: give neither out nor what keeps what is sent")
        if part is not None and not 0 <= part[0] <= part[1] <= self.values.size:
            raise InvalidTensorError(f"part is {part}, no span of the {self.values.size} numbers of the tensor")
        self._bits = bits = bits or default_bits(self.values.dtype)
        self._refuse_underflow = refuse_underflow and bits == 32 and self.values.dtype == np.float32
        self._mean, self._name, self._keep_sent, self._span = mean, name, keep_sent, part
        self.elements = self.values.size
        self.codec, self.detail = (CodecId.FLOAT32, 0) if bits == 32 else (CodecId.LANES, bits)
        kind = FORMATS[FORMS[self.values.dtype]].name + ("" if bits == 32 else f" in lanes of {bits}")
        # Which part a rank keeps is its own affair, but all of them or none keep one.
        scattered = "" if part is None else ", a part on each rank"
        self.layout = f"{'mean of ' if mean else ''}{kind}[{self.elements}]{scattered}"

    @property
    def alike(self) -> Hashable:
        return self.layout, self.values.shape, self._span, self._keep_sent, self._refuse_underflow, self._name

    def bind(self, world_size: int, block_words: int, dense: bool) -> Blocks:
        bits, size = self._bits, self.values.size
        lanes = lanes_per_word(bits)
        blocks = -(-size // (block_words * lanes))
        self._limits = underflow_limits(bits, world_size) if self._refuse_underflow else NO_LIMITS
        self._part = part = Part(
            NO_WORDS,
            block_words,
            np.empty(blocks, np.bool_),
            np.empty(blocks, np.uint8),
            self._finish,
            lanes=lanes,
            form=FORMS[self.values.dtype],
            count=size,
            levels=levels(bits, world_size) if bits < 32 else 0,
            scales=scales(bits, world_size),
            units=units(bits, world_size, world_size if self._mean else 1),
            span=self._span,
            largest_sum=largest_sum(bits, world_size),
        )
        self._dense = dense
        self._scan()
        return Blocks([part])

    def _scan(self) -> None:
        """Set the part's data, and the exponents of its blocks. Raises NotFiniteError and UnderflowError."""
        import p4reduce.codecs.kernels as kernels

        part, output, flat = self._part, self._output, self.values
        if flat.ndim != 1:
            flat = flat.reshape(-1)
        part.values = words = flat.view(np.uint32) if flat.dtype == np.float32 else _words_of(flat)
        size, exponents, nonzero = part.block_words * part.lanes, part.exponents, part.nonzero
        if part.form == FLOAT32:
            found: int = kernels.scan(words, size, self._limits, exponents, nonzero)
        else:
            found = kernels.scan_halves(words.view(np.uint16)[: part.count], part.form, size, exponents, nonzero)
        if found & NOT_FINITE:
            raise NotFiniteError(self._fault())
        underflows = found >> COUNT_SHIFT
        if underflows and underflows * UNDERFLOW_SHARE > (numbers := np.count_nonzero(flat)):
            raise UnderflowError(
                f"{underflows} of the {numbers} numbers of {self._name or 'the tensor'} that are not 0 would become "
                f"0: they are too far below the largest of their {part.block_words} neighbours for a sum in fixed "
                "point; sum them by floating-point additions"
            )
        if self._dense and found & ZERO_BLOCKS:
            part.nonzero[:] = True
            found &= ~ZERO_BLOCKS
        self._found = found
        self._is_written = False  # until the path takes the memory of `out` for its sums (`_make_room`)
        part.in_place = output is not None and output.in_place
        if output is not None and output.flat is not None and (part.form == FLOAT32 or _fills_words(output.flat)):
            part.make_room = self._make_room

    def _make_room(self) -> NDArray[Any]:
        """Return the memory of `out` with zeros in the blocks that this rank does not hold."""
        output, part = self._output, self._part
        assert output is not None and output.flat is not None
        self._is_written, room = True, output.flat
        if not self._found & ZERO_BLOCKS:
            return room
        numbers = room.view(f"u{room.itemsize}")
        if not output.in_place:
            numbers.fill(0)
        elif self._found & NEGATIVE_ZEROS:
            numbers[np.repeat(~part.nonzero, part.block_words * part.lanes)[: numbers.size]] = 0
        return room

    def _fault(self) -> str:
        flat = known_to_numpy(self.values.reshape(-1))
        finite = np.isfinite(flat)
        index = int(finite.argmin())
        text = f"{name_element(self._name, self.values.shape, index)} is {flat[index]}"
        bad = int(flat.size - finite.sum())
        return f"{text} ({bad} such elements); a sum needs finite numbers, skip this step or clip first"

    def _finish(self, part: Part, sums: NDArray[np.uint32], exponents: NDArray[np.uint8]) -> Any:
        output = self._output
        if output is None:
            total = as_kind_of(self._given, self._numbers(part, sums))
        elif self._is_written or sums is part.values:
            total = output.written()
        else:
            total = output.write(self._numbers(part, sums))
        if not self._keep_sent:
            return total
        return Summed(total, as_kind_of(self._given, self._numbers(part, part.sent(exponents))))

    def _numbers(self, part: Part, sums: NDArray[np.uint32]) -> NDArray[Any]:
        numbers: NDArray[Any] = sums.view(self.values.dtype)
        if part.span is None:
            return numbers[: part.count].reshape(self.values.shape)
        begin, end = part.span
        before = begin % (part.block_words * part.lanes)
        return numbers[before : before + end - begin]


def _fills_words(flat: NDArray[Any]) -> bool:
    """Return whether numbers begin and end where words do."""
    return flat.nbytes % 4 == 0 and address(flat) % 4 == 0


def _words_of(flat: NDArray[Any]) -> NDArray[np.uint32]:
    """Return the words in which numbers lie; of numbers that do not fill words, a copy."""
    if _fills_words(flat):
        return flat.view(np.uint32)
    padded = np.zeros(-(-flat.nbytes // 4), np.uint32)
    padded.view(np.uint16)[: flat.size] = flat.view(np.uint16)
    return padded
