"""Floats in lanes of 16 or 8 bits: two or four numbers a word, rounded to multiples of a unit of each block.

A block of W words holds W · 32 / w numbers. The formats are in codecs/float_source.py. A number is off by at most half
a unit, 2^(E - m - 1), and the largest of a block by at most one: too much to lose in 8 bits, so the result can also
contain what this rank really sent, and a compressor keeps the difference for the next step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs.arrays import as_kind_of
from p4reduce.codecs.float_source import FloatCodec
from p4reduce.errors import InvalidTensorError
from p4reduce.protocol.call import CodecId

WIDTHS = (8, 16)


class Summed(NamedTuple):
    """What came of a tensor: the sum (or mean) over all ranks, and this rank's own part as it was sent."""

    total: Any
    sent: Any


class FloatLanes(FloatCodec):
    """A tensor of float32, float16 or bfloat16, each number in `bits` (8 or 16) of a word; the result is a `Summed`.

    With `mean` the total is the sum divided by the number of ranks. It is written to `out`, where there is one. `seed`,
    different on each rank and in each call, makes rounding stochastic; 0 rounds to the nearest. Without `keep_sent` the
    result is the total alone. With `rest` what this rank does not send is written there, before `wrap`. `part` is as
    in Float32.
    """

    codec = CodecId.LANES

    def __init__(
        self,
        values: Any,
        bits: int,
        *,
        mean: bool = False,
        name: str | None = None,
        out: Any = None,
        seed: int = 0,
        keep_sent: bool = True,
        rest: NDArray[np.float32] | None = None,
        part: tuple[int, int] | None = None,
    ) -> None:
        """NaN and infinity are refused (InvalidTensorError) before anything is sent, as are other types and widths."""
        if bits not in WIDTHS:
            raise InvalidTensorError(f"floats travel in lanes of 8 or 16 bits, or as float32 in 32, not in {bits}")
        super().__init__(values, bits, mean, name, out, seed=seed, keep_sent=keep_sent, rest=rest, part=part)
        self.detail = bits
        self.layout = f"{'mean of ' if mean else ''}{self._type_name} in lanes of {bits}[{self.elements}]"
        self.layout += self._scattered

    def wrap(self, result: Any) -> Any:
        if not self._keep_sent:
            return self._result(result)
        total, sent = result
        return Summed(self._result(total), as_kind_of(self._given, sent))
