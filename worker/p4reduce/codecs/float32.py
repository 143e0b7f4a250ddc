"""Floats through integer sums of 32 bits: every block is scaled by a power of two all ranks agree on.

With the exponent E and the headroom L of codecs/float_source.py a block is scaled by 2^(30 - L - E), so |q| <= 2^(30-L)
and the sum of N ranks stays within ±2^30; one that does not was damaged (`largest_sum`).

Error bound: the scaling is exact (a power of two, in float64), each rint is off by at most 1/2,
so before the last rounding to float32 the sum is off by at most  N · 2^(E - 31 + L).  With M the
largest |x| of the block over all ranks (M >= 2^(E-1)) that is at most  N · 2^(L - 30) · M.
A sum beyond float32's range becomes an infinity, as it does in float32 arithmetic; the mean of finite
numbers is finite, because the division by N comes before that last rounding. Only in blocks of denormal
numbers (f = 0) is E larger than needed.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from p4reduce.codecs.float_source import FloatCodec, scales
from p4reduce.protocol.call import CodecId


def scale_of(exponent_field: int, world_size: int) -> float:
    """2^(30 - L - E), what a block with this exponent field is multiplied by."""
    return float(scales(32, world_size)[exponent_field])


def error_bound(exponent_field: int, world_size: int) -> float:
    """How far a sum can be off before its last rounding to float32: N · 2^(E - 31 + L)."""
    return world_size / scale_of(exponent_field, world_size) / 2


class Float32(FloatCodec):
    """A tensor of float32, float16 or bfloat16. NaN and Inf are refused (NotFiniteError) before anything is sent.

    With `mean` the result is the sum divided by the number of ranks. It is written to `out`, where there is one. It is
    of the tensor's type, rounded once. With `part`, the begin and end of a span of the flattened tensor, the result is
    that of these numbers alone, flat: each rank may have another part.
    """

    codec = CodecId.FLOAT32
    detail = 0

    def __init__(
        self,
        values: Any,
        *,
        mean: bool = False,
        name: str | None = None,
        out: Any = None,
        part: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(values, 32, mean, name, out, part=part)
        self.layout = f"{'mean of ' if mean else ''}{self._type_name}[{self.elements}]"
        self.layout += self._scattered

    def wrap(self, result: NDArray[Any]) -> Any:
        return self._result(result)
