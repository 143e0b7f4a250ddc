"""INCEPTIONN: float32 in 0, 8, 16 or 32 bits each, by magnitude; for a ring of hosts, since no switch can sum it.

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

round() takes halves away from zero. With the scale "auto" (ours), s is the smallest power of two above all |x|.

The bytes, little-endian: E (int16); two bits a number, four numbers a byte from the lowest bits on (0 nothing, 1, 2 and
3 for 8, 16 and 32 bits); all numbers of 8 bits, all of 16, all of 32. The head, E and the tags, is as long for any
numbers, and determines the length of the rest. What was decoded and is encoded again comes out the same.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs.arrays import Scalar, name_element, to_numpy
from p4reduce.errors import InvalidTensorError

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

MOST_BITS: Final = 15
"""The smallest bound is 2^-15: a number below the scale has 15 bits and a sign."""
_SCALE_BYTES: Final = 2
_EXPONENTS: Final = range(-148, 129)
"""Exponents that a scale can have: a scale is the smallest power of two above a float32 that is not 0."""


class _Classes(NamedTuple):
    """The magnitudes from which on a number has 8, 16 or 32 bits, and the units that it counts, for one scale."""

    least_8: float
    least_16: float
    least_32: float
    per_8: float  #: factor that makes units of a number
    per_16: float
    most_8: int  #: largest number of units
    most_16: int
    rounding: float  #: number added before the fraction is cut off
    keep_zeros: bool  #: whether what became 0 takes 8 bits all the same


class Inceptionn:
    """The codec with its settings; equal ones on all ranks."""

    def __init__(
        self,
        bound: float = 2.0**-10,
        *,
        scale: float | Literal["auto"] = "auto",
        rule: Literal["bounded", "published"] = "bounded",
    ) -> None:
        """`bound`: the largest error in units of the scale, a power of two from 2^-15 to 2^-1. `scale`: "auto", or the
        power of two that counts as 1; larger numbers are not shortened. `rule`: "published" exceeds the bound."""
        mantissa, exponent = math.frexp(bound) if math.isfinite(bound) else (0.0, 0)
        self._b = 1 - exponent
        if mantissa != 0.5 or not 1 <= self._b <= MOST_BITS:
            raise ValueError(f"bound is {bound!r}; give a power of two from 2**-{MOST_BITS} to 2**-1")
        if rule not in ("bounded", "published"):
            raise ValueError(f'rule is {rule!r}; give "bounded" or "published"')
        self._exponent: int | None = None
        if scale != "auto":
            known = isinstance(scale, int | float) and math.isfinite(scale)
            mantissa, exponent = math.frexp(scale) if known else (0.0, 0)
            if mantissa != 0.5 or exponent - 1 not in _EXPONENTS:
                raise ValueError(f'scale is {scale!r}; give "auto" or a power of two')
            self._exponent = exponent - 1
        self.bound, self.scale, self.rule = bound, scale, rule

    def head_bytes(self, elements: int) -> int:
        """Bytes before a message's numbers: the scale, and two bits for each number's class."""
        return _SCALE_BYTES + -(-elements // 4)

    def encode(self, values: Floats, name: str | None = None) -> Bytes:
        """Return the bytes of float32 numbers of any shape. `name`: the tensor's, in errors.

        Raises InvalidTensorError for another type, and for a NaN or an infinity.
        """
        array = to_numpy(values, name or "the tensor")
        if array.dtype != np.float32:
            raise InvalidTensorError(f"{name or 'the tensor'} is {array.dtype}; convert it to float32")
        flat = array.reshape(-1)
        least, most = (float(flat.min()), float(flat.max())) if flat.size else (0.0, 0.0)
        if not (math.isfinite(least) and math.isfinite(most)):
            index = int(np.isfinite(flat).argmin())
            raise InvalidTensorError(
                f"{name_element(name, array.shape, index)} is {flat[index]}; skip this step or clip"
            )
        exponent = math.frexp(max(-least, most))[1] if self._exponent is None else self._exponent
        return np.concatenate([np.array([exponent], "<i2").view(np.uint8), *_encode(flat, self._classes(exponent))])

    def decode(self, data: Bytes, elements: int) -> Floats:
        """Return the numbers, float32 [elements].

        Raises InvalidTensorError where the bytes are none of so many numbers.
        """
        head = self.head_bytes(elements)
        tags = data[_SCALE_BYTES:head]
        sizes = _stream_bytes(tags) if len(data) >= head else ()
        if len(data) != head + sum(sizes):
            raise InvalidTensorError(f"{len(data)} B are no {elements} numbers: do all ranks encode alike?")
        exponent = int(data[:_SCALE_BYTES].view("<i2")[0])
        if exponent not in _EXPONENTS or (elements % 4 and tags[-1] >> 2 * (elements % 4)):
            raise InvalidTensorError(
                f"a scale of 2^{exponent}, or a number beyond {elements}: do all ranks encode alike?"
            )
        ends = np.cumsum([head, *sizes])
        units_8, units_16, whole = (data[start:end] for start, end in pairwise(ends))
        streams = _aligned(units_8, np.uint8), _aligned(units_16, np.uint16), _aligned(whole, np.float32)
        return _decode(tags, streams, self._classes(exponent), elements)

    def _classes(self, exponent: int) -> _Classes:
        """Return the classes for the scale 2^exponent."""
        one, b = 2.0**exponent, self._b
        if self.rule == "published":
            mid = -b + -(-b // 2)
            return _Classes(one * 2.0**-b, one * 2.0**mid, one, 2.0**7 / one, 2.0**15 / one, 127, 32767, 0.0, True)
        most_8 = min(127, 2**b - 1)
        return _Classes(
            0.0, one * min(1.0, 2.0 ** (7 - b)), one, 2.0**b / one, 2.0**15 / one, most_8, 32767, 0.5, False
        )


Streams = tuple[Bytes, NDArray[np.uint16], Floats]
"""The numbers of 8 bits, of 16 and of 32, each with a zero more: the kernel looks at each for every number."""


def _stream_bytes(tags: Bytes) -> tuple[int, int, int]:
    """The bytes of each stream."""
    words = np.zeros(-(-len(tags) // 8), np.uint64)
    words.view(np.uint8)[: len(tags)] = tags
    each = np.uint64(0x5555_5555_5555_5555)
    low, high = words & each, words >> np.uint64(1) & each
    one, two, three = (_count_even_bits(bits) for bits in (low & ~high, high & ~low, low & high))
    return one, 2 * two, 4 * three


def _count_even_bits(words: NDArray[np.uint64]) -> int:
    """Return how many of the bits 0, 2, 4, ... are 1; the others are 0."""
    fours = (words & np.uint64(0x3333_3333_3333_3333)) + (words >> np.uint64(2) & np.uint64(0x3333_3333_3333_3333))
    eights = (fours & np.uint64(0x0F0F_0F0F_0F0F_0F0F)) + (fours >> np.uint64(4) & np.uint64(0x0F0F_0F0F_0F0F_0F0F))
    return int((eights * np.uint64(0x0101_0101_0101_0101) >> np.uint64(56)).sum())  # at most 32 a word


def _aligned(data: Bytes, kind: type[Scalar]) -> NDArray[Scalar]:
    """A stream's numbers, and a zero."""
    numbers = np.empty(len(data) // np.dtype(kind).itemsize + 1, kind)
    numbers.view(np.uint8)[: len(data)] = data
    numbers[-1] = 0
    return numbers


def _encode(flat: Floats, classes: _Classes) -> list[Bytes]:
    """The tags and the streams, as bytes."""
    import p4reduce_lab.papers.inceptionn.kernels as kernels

    tags = np.empty(-(-len(flat) // 4), np.uint8)
    units_8, units_16 = np.empty(len(flat) + 1, np.uint8), np.empty(len(flat) + 1, np.uint16)
    whole = np.empty(len(flat) + 1, np.float32)  # only the pages that are written to take memory
    one, two, four = kernels.encode(flat, *classes, tags, units_8, units_16, whole)
    streams = units_16[:two].astype("<u2", copy=False), whole[:four].astype("<f4", copy=False)
    return [tags, units_8[:one], *(stream.view(np.uint8) for stream in streams)]


def _decode(tags: Bytes, streams: Streams, classes: _Classes, elements: int) -> Floats:
    import p4reduce_lab.papers.inceptionn.kernels as kernels

    values = np.empty(4 * len(tags), np.float32)
    shift = int(classes.per_16 / classes.per_8).bit_length() - 1
    kernels.decode(tags, *streams, shift, 1 / classes.per_16, values)
    return values[:elements]
