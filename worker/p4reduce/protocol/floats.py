"""Floating-point numbers of a tensor as words of a frame, and sums of words as numbers again. Kernels.

A word holds `lanes` (1, 2 or 4) integers of 32 / lanes bits: word j of a block has the block's numbers j, j + W,
j + 2 W, ... (W = `block_words`), the first in its lowest bits. It is Σ t_k · 2^(k · bits) mod 2^32, so a negative
integer borrows from the next lane, and adding 2^(bits-1) to every lane of a sum undoes all borrows at once. An adder
modulo 2^32 is all that it needs of a switch. Zeros are words of zero.

numba has no 16-bit floats: these are converted by operations on their bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p4reduce.protocol.state import BFLOAT16, FLOAT32, FORMATS, MOST_LANES, PartLayout, Words
from p4reduce.protocol.words import swap
from p4reduce_runtime.kernels import Function, kernel
from p4reduce_runtime.records import ReadOnly, Vector

_HALF_TOP: Final = 0x7C00
_LARGEST: Final = tuple(one.largest for one in FORMATS)
_LARGEST_NARROW: Final = 2.0**127
_LEAST_NARROW: Final = 2.0**-126
"""The largest and the least power of two that are normal numbers of float32."""
_PIECE: Final = np.uint64(32)
"""Words that the first loop over a block handles at most: else the compiler takes 64 at a time, of blocks of 32."""


@kernel()
def from_bfloat16(half: np.uint16) -> np.float32:
    """Return a bfloat16 as float32."""
    return np.uint32(np.uint32(half) << np.uint32(16)).view(np.float32)


@kernel()
def from_float16(half: np.uint16) -> np.float32:
    """Return a finite float16 as float32."""
    bits = np.uint32(half)
    size = np.uint32(bits & np.uint32(0x7FFF))
    normal = np.uint32((size << np.uint32(13)) + np.uint32(112 << 23))
    implied = np.uint32((size << np.uint32(13)) + np.uint32(113 << 23)).view(np.float32)  # 2^-14 too large
    denormal = np.float32(implied - np.float32(2.0**-14)).view(np.uint32)
    found = denormal if size < np.uint32(1 << 10) else normal
    return np.uint32(found | np.uint32((bits & np.uint32(0x8000)) << np.uint32(16))).view(np.float32)


@kernel()
def to_bfloat16(number: np.float32) -> np.uint16:
    """Return the bfloat16 next to a number that is no NaN; ties go to even."""
    bits = np.float32(number).view(np.uint32)
    odd = np.uint32((bits >> np.uint32(16)) & np.uint32(1))
    return np.uint16(np.uint32(bits + np.uint32(0x7FFF) + odd) >> np.uint32(16))


@kernel()
def to_float16(number: np.float32) -> np.uint16:
    """Return the float16 next to a number that is no NaN; ties go to even."""
    bits = np.float32(number).view(np.uint32)
    size = np.uint32(bits & np.uint32(0x7FFFFFFF))
    odd = np.uint32((size >> np.uint32(13)) & np.uint32(1))
    rounded = np.uint32(np.uint32(size + np.uint32(0xFFF) + odd - np.uint32(112 << 23)) >> np.uint32(13))
    normal = np.uint32(min(rounded, np.uint32(_HALF_TOP)))
    shifted = np.float32(abs(number) + np.float32(0.5)).view(np.uint32)  # whose unit is that of denormal numbers
    denormal = np.uint32(shifted - np.uint32(126 << 23))
    found = np.uint32(denormal if size < np.uint32(113 << 23) else normal)
    return np.uint16(found | np.uint32((bits >> np.uint32(16)) & np.uint32(0x8000)))


@kernel(separate=True)
def load(
    elements: ReadOnly[np.uint32], form: int, at: np.uint64, count: np.uint64, into: Vector[np.float32], room: np.uint64
) -> None:
    """Set `into[:room]` to `count` numbers from `at` on, and zeros."""
    if form == FLOAT32:
        numbers = elements.view(np.float32)
        for j in range(count):
            into[j] = numbers[at + j]
    else:
        halves = elements.view(np.uint16)
        if form == BFLOAT16:
            for j in range(count):
                into[j] = from_bfloat16(halves[at + j])
        else:
            for j in range(count):
                into[j] = from_float16(halves[at + j])
    for j in range(count, room):
        into[j] = np.float32(0)


@kernel()
def to_odd(number: float) -> np.float32:
    """Round to odd: return the equal float32, or where there is none the next one towards zero with its last bit set.

    Rounded to 16 bits it is what the number is, rounded once (Boldo and Melquiond, "Emulation of a FMA and correctly
    rounded sums", 2008: rounding to odd).
    """
    near = np.float32(number)
    beyond = np.uint32(abs(float(near)) > abs(number))
    inexact = np.uint32(float(near) != number)
    return np.uint32(np.uint32(near.view(np.uint32) - beyond) | inexact).view(np.float32)


@kernel()
def level(number: np.float32, scale: np.float32, levels: np.int32) -> np.uint32:
    """Return the integer next to number · scale, which is below 2^22, of at most `levels` in absolute value.

    Between 2^23 and 2^24 a float32 is an integer, its lowest bits: the addition rounds, ties to even.
    """
    bits = np.float32(np.float32(number * scale) + np.float32(1.5 * 2.0**23)).view(np.uint32)
    return np.uint32(min(max(np.int32(bits - np.uint32(0x4B400000)), np.int32(-levels)), levels))


@kernel()
def number_of(word: np.uint32, above: int, others: int, unit: np.float32) -> np.float32:
    """Return the number in a lane from which no lower lane has borrowed: `above` bits of the word lie above the
    lane, `others` above and below."""
    lane = np.int32(np.int32(word << np.uint32(above)) >> np.int32(others))
    return np.float32(np.float32(lane) * unit)


@kernel()
def as_it_is(number: np.float32) -> np.float32:
    """Return a float32."""
    return number


@kernel()
def rounded(number: float) -> np.float32:
    """Return the float32 next to a number."""
    return np.float32(number)


def _kernels_of(
    name: str,
    read: object,
    written: object,
    load: Callable[[Any], np.float32],
    to_float32: Callable[[float], np.float32],
    store: Callable[[np.float32], Any],
) -> tuple[Callable[..., np.uint32], Callable[..., None]]:
    """Return the kernels that encode and decode blocks of numbers of a format, which lie in memory of these types."""

    def inline(numbers: object) -> Callable[[Function], Function]:
        def named(function: Function) -> Function:
            function.__qualname__ = f"{function.__name__}_{name}"  # by which it is kept once compiled
            function.__annotations__["numbers"] = numbers
            return kernel(inline=True)(function)

        return named

    @inline(read)
    def quantize_words(
        numbers: NDArray[Any],
        at: np.uint64,
        size: np.uint64,
        begin: np.uint64,
        end: np.uint64,
        lanes: int,
        scale: float,
        levels: np.int32,
        weights: Words,
        frame: Words,
        start: np.uint64,
    ) -> np.uint32:
        """Do what `quantize` does for words `begin` to `end`."""
        part = np.uint32(0)
        narrow = np.float32(scale)
        second, third, fourth = at + size, at + size + size, at + size + size + size
        if lanes == 1:
            for j in range(begin, end):
                word = np.uint32(np.int32(np.rint(load(numbers[at + j]) * scale)))
                frame[start + j] = swap(word)
                part = np.uint32(part + word * weights[j])
        elif lanes == 2:
            for j in range(begin, end):
                word = level(load(numbers[at + j]), narrow, levels)
                word = np.uint32(word + (level(load(numbers[second + j]), narrow, levels) << np.uint32(16)))
                frame[start + j] = swap(word)
                part = np.uint32(part + word * weights[j])
        else:
            for j in range(begin, end):
                word = level(load(numbers[at + j]), narrow, levels)
                word = np.uint32(word + (level(load(numbers[second + j]), narrow, levels) << np.uint32(8)))
                word = np.uint32(word + (level(load(numbers[third + j]), narrow, levels) << np.uint32(16)))
                word = np.uint32(word + (level(load(numbers[fourth + j]), narrow, levels) << np.uint32(24)))
                frame[start + j] = swap(word)
                part = np.uint32(part + word * weights[j])
        return part

    @inline(written)
    def dequantize_words(
        frame: ReadOnly[np.uint32],
        start: np.uint64,
        size: np.uint64,
        begin: np.uint64,
        end: np.uint64,
        lanes: int,
        unit: float,
        numbers: NDArray[Any],
        to: np.uint64,
    ) -> None:
        """Do what `dequantize` does for words `begin` to `end`."""
        narrow = np.float32(unit)
        second, third, fourth = to + size, to + size + size, to + size + size + size
        if lanes == 1:
            for j in range(begin, end):
                numbers[to + j] = store(to_float32(np.int32(swap(frame[start + j])) * unit))
        elif lanes == 2:
            for j in range(begin, end):
                word = swap(frame[start + j])
                numbers[to + j] = store(number_of(word, 16, 16, narrow))
                numbers[second + j] = store(number_of(np.uint32(word + np.uint32(0x8000)), 0, 16, narrow))
        else:
            for j in range(begin, end):
                word = swap(frame[start + j])
                numbers[to + j] = store(number_of(word, 24, 24, narrow))
                numbers[second + j] = store(number_of(np.uint32(word + np.uint32(0x80)), 16, 24, narrow))
                numbers[third + j] = store(number_of(np.uint32(word + np.uint32(0x8080)), 8, 24, narrow))
                numbers[fourth + j] = store(number_of(np.uint32(word + np.uint32(0x808080)), 0, 24, narrow))

    @inline(read)
    def quantize(
        numbers: NDArray[Any],
        at: np.uint64,
        size: np.uint64,
        lanes: int,
        scale: float,
        levels: np.int32,
        weights: Words,
        frame: Words,
        start: np.uint64,
    ) -> np.uint32:
        """Write a block of numbers from `at` on as `size` words; return the sum of the words times their weights."""
        part = quantize_words(
            numbers, at, size, np.uint64(0), min(size, _PIECE), lanes, scale, levels, weights, frame, start
        )
        if size > _PIECE:
            rest = quantize_words(numbers, at, size, _PIECE, size, lanes, scale, levels, weights, frame, start)
            part = np.uint32(part + rest)
        return part

    @inline(written)
    def dequantize(
        frame: ReadOnly[np.uint32],
        start: np.uint64,
        size: np.uint64,
        lanes: int,
        unit: float,
        numbers: NDArray[Any],
        to: np.uint64,
    ) -> None:
        """Write the numbers of a block of `size` summed words from `to` on: what `quantize` has summed."""
        dequantize_words(frame, start, size, np.uint64(0), min(size, _PIECE), lanes, unit, numbers, to)
        if size > _PIECE:
            dequantize_words(frame, start, size, _PIECE, size, lanes, unit, numbers, to)

    return quantize, dequantize


_HALVES = ReadOnly[np.uint16], Vector[np.uint16]
quantize, dequantize = _kernels_of("float32", ReadOnly[np.float32], Vector[np.float32], as_it_is, rounded, as_it_is)
quantize_float16, dequantize_float16 = _kernels_of("float16", *_HALVES, from_float16, to_odd, to_float16)
quantize_bfloat16, dequantize_bfloat16 = _kernels_of("bfloat16", *_HALVES, from_bfloat16, to_odd, to_bfloat16)


@kernel(separate=True)
def quantize_spare(
    spare: Vector[np.float32],
    size: np.uint64,
    lanes: int,
    scale: float,
    levels: np.int32,
    weights: Words,
    frame: Words,
    start: np.uint64,
) -> np.uint32:
    """Write the block of numbers in `spare` as words; return their weighted sum."""
    return quantize(spare, np.uint64(0), size, lanes, scale, levels, weights, frame, start)


@kernel(separate=True)
def dequantize_some(
    frame: ReadOnly[np.uint32],
    start: np.uint64,
    size: np.uint64,
    lanes: int,
    unit: float,
    form: int,
    spare: Vector[np.float32],
    sums: Words,
    to: np.uint64,
    count: np.uint64,
) -> None:
    """Write the first `count` numbers of a block of summed words from number `to` of `sums` on, by way of `spare`."""
    if form == FLOAT32:
        dequantize(frame, start, size, lanes, unit, spare, np.uint64(0))
        floats = sums.view(np.float32)
        for j in range(count):
            floats[to + j] = spare[j]
        return
    halves, all_halves = sums.view(np.uint16), spare.view(np.uint16)
    if form == BFLOAT16:
        dequantize_bfloat16(frame, start, size, lanes, unit, all_halves, np.uint64(0))
    else:
        dequantize_float16(frame, start, size, lanes, unit, all_halves, np.uint64(0))
    for j in range(count):
        halves[to + j] = all_halves[j]


@kernel()
def first_word(part: PartLayout, block: int, size: np.uint64) -> int:
    """Return where in `elements` a block of this part begins. `size`: words of a block."""
    row = block - part.first_block
    if part.step != 1:  # a division takes as long as the rest
        row //= part.step
    words: Any = np.int64(size)
    first: int = part.begin + row * words * max(1, part.lanes)
    return first >> part.word_shift


@kernel(inline=True)
def copy_words(
    elements: ReadOnly[np.uint32], begin: int, end: int, size: np.uint64, weights: Words, frame: Words, start: np.uint64
) -> np.uint32:
    """Write a block of words from `begin` on, with zeros from `end` on; return their weighted sum."""
    weighed = np.uint32(0)
    at, filled = np.uint64(begin), min(size, np.uint64(end - begin))
    for j in range(filled):
        word = elements[at + j]
        frame[start + j] = swap(word)
        weighed = np.uint32(weighed + word * weights[j])
    for j in range(filled, size):
        frame[start + j] = 0
    return weighed


@kernel(inline=True)
def encode(
    part: PartLayout,
    elements: ReadOnly[np.uint32],
    block: int,
    scale: float,
    size: np.uint64,
    weights: Words,
    spare: Vector[np.float32],
    frame: Words,
    start: np.uint64,
) -> np.uint32:
    """Write a block of a part as words; return their weighted sum. `spare` has room for a block's numbers."""
    lanes = part.lanes
    if lanes == 0:
        return copy_words(elements, first_word(part, block, size), part.end, size, weights, frame, start)
    room = np.uint64(lanes) * size
    at = np.uint64(part.begin) + np.uint64(block - part.first_block) * room
    count = min(room, np.uint64(part.end) - at)
    levels = np.int32(part.levels)
    if float(levels) > scale * _LARGEST[part.form]:  # a number rounded up would be beyond its type
        levels = np.int32(levels - 1)
    if count == room:
        if part.form == FLOAT32:
            return quantize(elements.view(np.float32), at, size, lanes, scale, levels, weights, frame, start)
        halves = elements.view(np.uint16)
        if part.form == BFLOAT16:
            return quantize_bfloat16(halves, at, size, lanes, scale, levels, weights, frame, start)
        return quantize_float16(halves, at, size, lanes, scale, levels, weights, frame, start)
    load(elements, part.form, at, count, spare, room)
    return quantize_spare(spare, size, lanes, scale, levels, weights, frame, start)


@kernel(inline=True)
def add_float32(numbers: ReadOnly[np.float32], at: np.uint64, count: np.uint64, scale: float, words: Words) -> None:
    """Add to `words` what `quantize` makes of `count` numbers from `at` on, in 32 bits."""
    narrow = np.float32(scale)
    if scale <= _LARGEST_NARROW:  # the product has a float32's bits, or is next to zero
        for j in range(count):
            words[j] = np.uint32(words[j] + np.uint32(np.int32(np.rint(np.float32(numbers[at + j] * narrow)))))
    else:
        for j in range(count):
            words[j] = np.uint32(words[j] + np.uint32(np.int32(np.rint(numbers[at + j] * scale))))


@kernel(inline=True)
def store_float32(words: Words, count: np.uint64, unit: float, numbers: Vector[np.float32], to: np.uint64) -> None:
    """Write the numbers of the first `count` summed words in this machine's order from `to` on, as `dequantize`."""
    narrow = np.float32(unit)
    if unit >= _LEAST_NARROW and np.float64(unit).view(np.uint64) << np.uint64(12) == 0:
        for j in range(count):  # only the first conversion rounds: the unit is a power of two
            numbers[to + j] = np.float32(np.float32(np.int32(words[j])) * narrow)
    else:
        for j in range(count):
            numbers[to + j] = np.float32(np.int32(words[j]) * unit)


@kernel(separate=True)
def encode_held(  # noqa: PLR0917
    part: PartLayout,
    elements: ReadOnly[np.uint32],
    begins: Vector[np.int64],
    held: np.uint64,
    block: int,
    scale: float,
    size: np.uint64,
    weights: Words,
    spare: Vector[np.float32],
    frame: Words,
    start: np.uint64,
) -> np.uint32:
    """Write the sum of the words of a block over the ranks of this host that hold it, which are the bits of `held`.

    `begins`: the words from which the ranks' words are counted. Return the weighted sum of the words.
    """
    words = spare[np.uint64(MOST_LANES) * size :].view(np.uint32)
    weighed = np.uint32(0)
    at, rank = np.uint64(first_word(part, block, size)), 0
    if part.lanes == 1 and part.form == FLOAT32 and at + size <= np.uint64(part.end):
        # A full block of float32 in 32 bits, without a frame for each rank: a third of the time of the loop below.
        numbers = elements.view(np.float32)
        for j in range(size):
            words[j] = 0
        while held:
            if held & np.uint64(1):
                add_float32(numbers, at + np.uint64(begins[rank]), size, scale, words)
            held >>= np.uint64(1)
            rank += 1
        for j in range(size):
            frame[start + j] = swap(words[j])
            weighed = np.uint32(weighed + words[j] * weights[j])
        return weighed
    for j in range(size):
        frame[start + j] = 0
    while held:
        if held & np.uint64(1):
            part_sum = encode(part, elements[begins[rank] :], block, scale, size, weights, spare, words, np.uint64(0))
            weighed = np.uint32(weighed + part_sum)
            for j in range(size):
                frame[start + j] = swap(np.uint32(swap(frame[start + j]) + swap(words[j])))
        held >>= np.uint64(1)
        rank += 1
    return weighed


@kernel(inline=True)
def decode(
    part: PartLayout,
    frame: ReadOnly[np.uint32],
    start: np.uint64,
    size: np.uint64,
    unit: float,
    block: int,
    spare: Vector[np.float32],
    sums: Words,
) -> None:
    """Write a summed block of a part to its place in `sums`, if it has one: numbers, or words."""
    row = block - part.first_block
    if row < part.kept_begin or row >= part.kept_end:
        return
    begin = np.uint64(part.sums_begin)
    if not part.decodes:
        to = begin + np.uint64(row) * size
        for j in range(size):
            sums[to + j] = swap(frame[start + j])
        return
    lanes = part.lanes
    room = np.uint64(lanes) * size
    first = np.uint64(row) * room
    count = min(room, np.uint64(part.end - part.begin) - first)
    to = (begin << np.uint64(part.word_shift)) + first
    if count < room:
        dequantize_some(frame, start, size, lanes, unit, part.form, spare, sums, to, count)
    elif part.form == FLOAT32:
        dequantize(frame, start, size, lanes, unit, sums.view(np.float32), to)
    elif part.form == BFLOAT16:
        dequantize_bfloat16(frame, start, size, lanes, unit, sums.view(np.uint16), to)
    else:
        dequantize_float16(frame, start, size, lanes, unit, sums.view(np.uint16), to)
