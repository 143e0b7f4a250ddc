"""INCEPTIONN: float32 in 0, 8, 16 or 32 bits each, by magnitude, and the mean over a ring of hosts in such numbers.

Source: Li et al., "A Network-Centric Hardware/Algorithm Co-Design to Accelerate Distributed Training of Deep Neural
Networks", MICRO 2018. Its rule is given here as others describe it (unverified). A number x counts in units of a scale
s = 2^E, y = x / s, with biased exponent e and a bound 2^-b, between eb = 127 - b and mid = eb + ceil(b / 2):

    published    e >= 127   |y| >= 1          32 bits, as it is
                 e >= mid                     16 bits: the sign and floor(|y| 2^15)
                 e >= eb                       8 bits: the sign and floor(|y| 2^7)
                 else       |y| < 2^-b         nothing: 0

As published it breaks its own bound: 8 bits truncate to 2^-7, for b = 8 and 10 too. And where gradients are far below
the scale, nearly all of them become 0. Ours, "bounded", keeps within the bound, and gives nothing for what is 0 then:

    bounded      |y| >= 1                     32 bits, as it is
                 |y| >= 2^(7-b)               16 bits: the sign and round(|y| 2^15), at most 32767
                 else                          8 bits: the sign and round(|y| 2^b), at most 127 and below 1

round() takes halves away from zero. With the scale "auto" (ours), s is the smallest power of two above all |x|. A
message has E in two bytes, two bits a number for its class, and the numbers; its bytes are counted, not made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from p4reduce.errors import NotFiniteError

Floats = NDArray[np.float32]

_LARGEST: Final = np.finfo(np.float32).max
_SCALE_BYTES: Final = 2


@dataclass(frozen=True)
class Inceptionn:
    """The rule with its settings."""

    bound: float = 2.0**-10
    """The largest error in units of the scale, a power of two from 2^-15 to 2^-1; "published" exceeds it."""
    scale: float | Literal["auto"] = "auto"
    """The power of two that counts as 1; larger numbers are not shortened."""
    rule: Literal["bounded", "published"] = "bounded"

    def sent(self, values: Floats) -> tuple[Floats, int]:
        """Return what a receiver makes of finite numbers, float32 [elements], and the bytes of their message."""
        b = 1 - math.frexp(self.bound)[1]
        if self.rule == "published":
            least_8, least_16, units_8, added, zeros_too = self.bound, 2.0 ** -(b // 2), 2**7, 0.0, True
        else:
            least_8, least_16, units_8, added, zeros_too = 0.0, min(1.0, 2.0 ** (7 - b)), 2**b, 0.5, False
        one = 2.0 ** math.frexp(float(np.abs(values).max(initial=0)))[1] if self.scale == "auto" else self.scale
        size = np.abs(values) / np.float64(one)
        short = np.minimum(np.floor(size * units_8 + added), min(127, units_8 - 1))
        half = np.minimum(np.floor(size * 2**15 + added), 2**15 - 1)
        has_16, has_32 = size >= least_16, size >= 1
        has_8 = (size >= least_8) & ((short > 0) | zeros_too)
        bits = np.select([has_32, has_16, has_8], [32, 16, 8])
        kept = np.select([has_32, has_16, has_8], [size, half / 2**15, short / units_8]) * one
        signed = np.where(values < 0, -kept, kept) + 0.0  # one zero
        return signed.astype(np.float32), _SCALE_BYTES + -(-len(values) // 4) + int(bits.sum()) // 8


def mean_over_ring(values: Sequence[Floats], codec: Inceptionn) -> tuple[Floats, int]:
    """Return the mean of the ranks' values, float32 [elements], and the number of bytes that all ranks send.

    Every rank sends to the next and receives from the one before. In N - 1 hops each part passes all N ranks, each of
    which adds its own; then the finished parts go round in N - 1 hops as they were encoded. The rank that finished a
    part takes what it decodes of it, as the others do: so all have the same bits.

    Raises NotFiniteError for a NaN or an infinity.
    """
    world_size, elements = len(values), len(values[0])
    if not all(np.isfinite(own).all() for own in values):
        raise NotFiniteError("a rank's values hold a NaN or an infinity: lower the learning rate, or skip this step")
    sums = [own / np.float32(world_size) for own in values]  # before they are added up, so that they stay finite
    mean, bytes_sent = np.empty_like(sums[0]), 0
    for part in range(world_size):
        of_part = slice(elements * part // world_size, elements * (part + 1) // world_size)
        received, size = codec.sent(sums[part][of_part])
        for hop in range(1, world_size):
            bytes_sent += size
            total = sums[(part + hop) % world_size][of_part] + received
            received, size = codec.sent(np.clip(total, -_LARGEST, _LARGEST))  # rounding up may pass the largest number
        mean[of_part] = received
        bytes_sent += (world_size - 1) * size
    return mean, bytes_sent
