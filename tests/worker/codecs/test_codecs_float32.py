"""float32: the ends of the range, zeros, layouts, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from p4reduce.codecs import Floats
from p4reduce.codecs.formats import headroom_bits
from p4reduce.errors import InvalidTensorError
from rigs.float_sums import summed_words

WORDS = 8


def switch_sum(tensors: list[np.ndarray], *, mean: bool = False) -> np.ndarray:
    """What the ranks get, with the switch's part done by numpy."""
    sources = [Floats(t, mean=mean).bind(len(tensors), WORDS, False) for t in tensors]
    result: np.ndarray = sources[0].decode(*summed_words(sources, WORDS))[0]
    return result


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5, 8, 9, 31, 32])
def test_the_largest_numbers_of_all_ranks_do_not_overflow_32_bits(world_size: int) -> None:
    largest = np.finfo(np.float32).max
    source = Floats(np.full(WORDS, largest, np.float32)).bind(world_size, WORDS, False)
    words = source.encode(np.array([0]), source.exponents).astype(np.int64)
    assert world_size * int(words.max()) == source.parts[0].largest_sum < 2**30
    assert int(words.max()) == (2**24 - 1) << (6 - headroom_bits(world_size))  # no bit is given away


@pytest.mark.parametrize("world_size", [33, 64, 65, 128, 1000, 1024])
def test_sums_of_many_ranks_are_within_the_bound_and_below_the_largest(world_size: int) -> None:
    """20 bits of a number's absolute value are left to each of 1,024 ranks."""
    largest = np.finfo(np.float32).max
    source = Floats(np.full(WORDS, largest, np.float32)).bind(world_size, WORDS, False)
    word = int(source.encode(np.array([0]), source.exponents).astype(np.int64).max())
    assert world_size * word == source.parts[0].largest_sum <= 2**30
    assert word.bit_length() in (30 - headroom_bits(world_size), 31 - headroom_bits(world_size))
    rng = np.random.default_rng(world_size)
    tensors = [rng.standard_normal(WORDS).astype(np.float32) for _ in range(world_size)]
    exact = np.sum([tensor.astype(np.float64) for tensor in tensors], axis=0)
    reached = max(float(np.abs(tensor).max()) for tensor in tensors)
    error = np.abs(switch_sum(tensors) - exact)
    assert (error <= world_size * 2.0 ** (headroom_bits(world_size) - 30) * reached).all()
    assert error.max() > 2.0**-30


def test_a_sum_beyond_float32_is_infinite_as_in_float_arithmetic_and_its_mean_is_not() -> None:
    tensor = np.full(3, np.finfo(np.float32).max, np.float32)
    assert np.isposinf(switch_sum([tensor, tensor])).all()
    np.testing.assert_allclose(switch_sum([tensor, tensor], mean=True), tensor, rtol=1e-6)


@pytest.mark.parametrize("other", [np.zeros(3), np.zeros(3, np.int64), [1.0], 2.0])
def test_other_types_are_refused(other: object) -> None:
    with pytest.raises(InvalidTensorError):
        Floats(other)


def test_a_strided_tensor_is_read_in_its_own_order() -> None:
    tensor = np.arange(24, dtype=np.float32).reshape(4, 6)[::2, ::-1].T
    assert (switch_sum([tensor]) == tensor).all()
