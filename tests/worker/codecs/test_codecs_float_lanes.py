"""Floats, also in lanes of 8 or 16 bits: the stated error, what is said to be sent, limits, and what is refused."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p4reduce.codecs import Floats, Summed
from p4reduce.codecs.formats import headroom_bits, levels
from p4reduce.errors import LaneOverflowError
from p4reduce_contracts.wire.lanes import lane_limit
from rigs.float_sums import summed_words

WORDS = 8


def switch_sum(tensors: list[np.ndarray], bits: int, *, mean: bool = False, dense: bool = False) -> list[Summed]:
    """Return what the ranks get, with the switch's part done by numpy."""
    segments = [Floats(tensor, bits, mean=mean, keep_sent=True) for tensor in tensors]
    sources = [segment.bind(len(tensors), WORDS, dense) for segment in segments]
    words, agreed = summed_words(sources, WORDS)
    return [source.decode(words, agreed)[0] for source in sources]


@pytest.mark.parametrize(
    ("bits", "world_size"), [*product([8, 16, 32], [1, 2, 3, 4, 5, 31, 32]), (32, 33), (32, 65), (32, 1024)]
)
def test_the_largest_sum_of_a_word_is_reached(bits: int, world_size: int) -> None:
    """The sums of float32 use all bits."""
    below_four = np.full(WORDS * 32 // bits, np.nextafter(np.float32(4), np.float32(0)))
    source = Floats(below_four, bits).bind(world_size, WORDS, False)
    (words,) = source.encode(np.array([0]), source.exponents).astype(np.int64)
    assert (world_size * words == source.parts[0].largest_sum).all()
    if bits == 32:
        assert (words == round((2**24 - 1) * 2.0 ** (6 - headroom_bits(world_size)))).all()
        assert source.parts[0].largest_sum <= 2**30


def test_a_sum_beyond_float32_is_infinite_as_in_float_arithmetic_and_its_mean_is_not() -> None:
    tensor = np.full(3, np.finfo(np.float32).max, np.float32)
    assert np.isposinf(switch_sum([tensor, tensor], 32)[0].total).all()
    np.testing.assert_allclose(switch_sum([tensor, tensor], 32, mean=True)[0].total, tensor, rtol=1e-6)


@settings(max_examples=300)
@given(
    st.sampled_from([8, 16]),
    st.integers(1, 32),
    st.integers(0, 2**32),
    st.integers(-140, 100),
    st.integers(0, 12),
    st.booleans(),
)
@pytest.mark.slow
def test_the_error_is_half_a_unit_and_sent_says_what_was_summed(
    bits: int, world_size: int, seed: int, exponent: int, spread: int, dense: bool
) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 150))
    with np.errstate(under="ignore"):
        powers = 2.0 ** (exponent + rng.integers(-spread, 1, size))
        tensors = [(rng.standard_normal(size) * powers).astype(np.float32) for _ in range(world_size)]
    summed = switch_sum(tensors, bits, dense=dense)
    per_block = WORDS * 32 // bits
    for start in range(0, size, per_block):
        part = slice(start, start + per_block)
        field = max(int(np.abs(t[part]).max().view(np.uint32)) >> 23 for t in tensors)
        m = bits - 2 - headroom_bits(world_size)
        unit = max(2.0 ** (field - 126 - m), 2.0**-127)
        for one, tensor in zip(summed, tensors, strict=True):
            off = np.abs(one.sent[part].astype(np.float64) - tensor[part])
            assert (off <= unit / 2 + np.spacing(np.float32(unit))).all()
    exact = np.sum([one.sent.astype(np.float64) for one in summed], axis=0)
    with np.errstate(under="ignore"):
        for one in summed:
            np.testing.assert_array_equal(one.total, exact.astype(np.float32))


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 17, 32, 64])
def test_the_largest_numbers_fit_their_lane(bits: int, world_size: int) -> None:
    """All ranks at the end of the exponent's range, with both signs side by side; the nearest step above 3.4e38 would
    be 2^128, of which the largest level falls short by one step."""
    assert world_size * levels(bits, world_size) <= lane_limit(bits)
    largest = np.nextafter(np.float32(4), np.float32(0))
    tensor = np.tile(np.array([largest, -largest, 0, 1e-3], np.float32), 16)
    for one in switch_sum([tensor] * world_size, bits):
        np.testing.assert_array_equal(one.total[:2], [4 * world_size, -4 * world_size])
        np.testing.assert_array_equal(one.total[2::4], 0)
    step = 2.0 ** (headroom_bits(world_size) + 2 - bits)
    most = np.float32(2.0**128 * (1 - step))
    huge = np.array([3.4e38, -3.4e38, np.finfo(np.float32).max, 1.0], np.float32)
    for mean in (False, True) if world_size < 64 else ():  # of which each number is one step or none
        for one in switch_sum([huge] * world_size, bits, mean=mean):
            np.testing.assert_allclose(one.sent, [3.4e38, -3.4e38, most, 0], rtol=max(step, 1e-6))
            assert one.sent[2] == most
            if mean or world_size == 1:  # the sum is beyond float32, the mean is not
                np.testing.assert_allclose(one.total, one.sent, rtol=1e-6)
            else:
                np.testing.assert_array_equal(one.total, [np.inf, -np.inf, np.inf, 0])  # as in float32 arithmetic


def test_eight_bits_hold_64_ranks() -> None:
    assert [levels(8, ranks) for ranks in (1, 2, 3, 4, 8, 16, 32, 33, 64)] == [64, 32, 16, 16, 8, 4, 2, 1, 1]
    assert [levels(16, ranks) for ranks in (1, 64, 65, 1 << 14)] == [1 << 14, 256, 128, 1]
    with pytest.raises(LaneOverflowError, match="lanes of 8 bits hold no sum of 65 rounded floats: use 16 or 32 bits"):
        levels(8, 65)
    with pytest.raises(LaneOverflowError):
        Floats(np.ones(3, np.float32), 8).bind(65, WORDS, False)
    with pytest.raises(LaneOverflowError):
        levels(16, (1 << 14) + 1)


def test_blocks_of_zeros_are_skipped() -> None:
    values = np.zeros(3 * 32 + 1, np.float32)
    values[32:64] = -0.0
    values[70] = 1e-42  # a denormal number is not nothing
    source = Floats(values, 8).bind(2, WORDS, False)
    assert source.nonzero.tolist() == [False, False, True, False]
    other = np.zeros_like(values)
    other[96] = 7
    one, two = switch_sum([values, other], 8)
    assert np.flatnonzero(one.total).tolist() == [96]  # 1e-42 is below what a block's unit resolves
    assert np.flatnonzero(two.sent).tolist() == [96] and not one.sent.any()
    assert Floats(values, 8).bind(2, WORDS, True).nonzero.all()
    (empty,) = switch_sum([np.zeros((0, 4), np.float32)], 16)
    assert empty.total.shape == empty.sent.shape == (0, 4)
