"""float32: exact scaling, the stated error bound, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p4reduce.codecs import Floats
from p4reduce.codecs.formats import headroom_bits, scales
from p4reduce.errors import InvalidTensorError
from p4reduce.protocol.source import UNTOUCHED
from rigs.scenarios import sum_of_float32

WORDS = 8


def switch_sum(tensors: list[np.ndarray], dense: bool = False) -> np.ndarray:
    """What the ranks get, with the switch's part done by numpy."""
    sources = [Floats(t).bind(len(tensors), WORDS, dense) for t in tensors]
    blocks = np.arange(sources[0].n_blocks)
    held = np.array([s.nonzero for s in sources])
    fields = np.where(held, [s.exponents for s in sources], 0).max(axis=0).astype(np.uint8)
    sums = np.zeros((len(blocks), WORDS), np.uint32)
    for source in sources:
        mine = blocks[source.nonzero]
        sums[mine] += source.encode(mine, fields[mine]).astype(np.int32).view(np.uint32)
    assert np.abs(sums.view(np.int32)).max(initial=0) <= sources[0].elements.largest_sum
    (result,) = sources[0].decode(sums.astype(">u4"), np.where(held.any(axis=0), fields, UNTOUCHED).astype(np.uint8))
    return result


finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(max_examples=150)
@given(st.integers(1, 32), st.integers(0, 2**32), st.integers(-140, 100), st.integers(0, 40), st.booleans())
def test_error_stays_within_the_bound(world_size: int, seed: int, exponent: int, spread: int, dense: bool) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 60))
    powers = 2.0 ** (exponent + rng.integers(-spread, 1, size))
    with np.errstate(under="ignore"):
        tensors = [(rng.standard_normal(size) * powers).astype(np.float32) for _ in range(world_size)]
    got = switch_sum(tensors, dense)
    exact = np.sum([t.astype(np.float64) for t in tensors], axis=0)
    for start in range(0, size, WORDS):
        part = slice(start, start + WORDS)
        largest = max(np.abs(t[part]).max() for t in tensors)
        field = int(np.float32(largest).view(np.uint32)) >> 23
        bound = world_size / float(scales(32, world_size)[field]) / 2  # N · 2^(E - 31 + L)
        rounding = np.spacing(np.abs(exact[part]).astype(np.float32)).astype(np.float64)
        assert (np.abs(got[part] - exact[part]) <= bound + rounding).all()
        if largest >= 2.0**-126:  # the bound in terms of the block's largest value, as the docstring has it
            assert bound <= world_size * 2.0 ** (headroom_bits(world_size) - 30) * float(largest)
    assert got.tobytes() == sum_of_float32(tensors, WORDS).tobytes()


@given(st.lists(finite, min_size=1, max_size=20))
def test_one_rank_keeps_values_exact_near_the_largest(values: list[float]) -> None:
    tensor = np.array(values, np.float32)
    got = switch_sum([tensor])
    for start in range(0, len(values), WORDS):
        block, out = tensor[start : start + WORDS], got[start : start + WORDS]
        near = np.abs(block) >= np.abs(block).max() / 64
        assert (out[near] == block[near]).all()


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5, 8, 9, 31, 32])
def test_the_largest_numbers_of_all_ranks_do_not_overflow_32_bits(world_size: int) -> None:
    largest = np.finfo(np.float32).max
    source = Floats(np.full(WORDS, largest, np.float32)).bind(world_size, WORDS, False)
    words = source.encode(np.array([0]), source.exponents).astype(np.int64)
    assert world_size * int(words.max()) == source.elements.largest_sum < 2**30
    assert int(words.max()) == (2**24 - 1) << (6 - headroom_bits(world_size))  # no bit is given away


@pytest.mark.parametrize("world_size", [33, 64, 65, 128, 1000, 1024])
def test_sums_of_many_ranks_are_within_the_bound_and_below_the_largest(world_size: int) -> None:
    """20 bits of a number's absolute value are left to each of 1,024 ranks."""
    largest = np.finfo(np.float32).max
    source = Floats(np.full(WORDS, largest, np.float32)).bind(world_size, WORDS, False)
    word = int(source.encode(np.array([0]), source.exponents).astype(np.int64).max())
    assert world_size * word == source.elements.largest_sum <= 2**30
    assert word.bit_length() in (30 - headroom_bits(world_size), 31 - headroom_bits(world_size))
    rng = np.random.default_rng(world_size)
    tensors = [rng.standard_normal(WORDS).astype(np.float32) for _ in range(world_size)]
    exact = np.sum([tensor.astype(np.float64) for tensor in tensors], axis=0)
    reached = max(float(np.abs(tensor).max()) for tensor in tensors)
    error = np.abs(switch_sum(tensors) - exact)
    assert (error <= world_size * 2.0 ** (headroom_bits(world_size) - 30) * reached).all()
    assert error.max() > 2.0**-30


def test_scales_are_powers_of_two() -> None:
    for world_size in (1, 2, 32):
        assert (np.frexp(scales(32, world_size))[0] == 0.5).all()


def test_a_sum_beyond_float32_is_infinite_as_in_float_arithmetic() -> None:
    tensor = np.full(3, np.finfo(np.float32).max, np.float32)
    assert np.isposinf(switch_sum([tensor, tensor])).all()


def test_zero_blocks_are_not_held_unless_dense() -> None:
    tensor = np.zeros(5 * WORDS, np.float32)
    tensor[2 * WORDS] = 1e-45
    tensor[4 * WORDS] = -0.0
    assert Floats(tensor).bind(4, WORDS, False).nonzero.tolist() == [False, False, True, False, False]
    assert Floats(tensor).bind(4, WORDS, True).nonzero.all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_numbers_are_refused_by_name_and_place(bad: float) -> None:
    tensor = np.zeros((3, 50), np.float32)
    tensor[1, 7] = bad
    with pytest.raises(InvalidTensorError, match=r"element \[1, 7\] of fc\.weight is -?(nan|inf) \(1 such"):
        Floats(tensor, name="fc.weight").bind(2, WORDS, False)


@pytest.mark.parametrize("other", [np.zeros(3), np.zeros(3, np.int64), [1.0], 2.0])
def test_other_types_are_refused(other: object) -> None:
    with pytest.raises(InvalidTensorError):
        Floats(other)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (8,), (3, 0, 2), (2, 3, 5)])
def test_shapes_are_kept(shape: tuple[int, ...]) -> None:
    tensor = np.full(shape, 2.5, np.float32)
    got = switch_sum([tensor, tensor])
    assert got.shape == shape
    assert (got == 5).all()


def test_a_strided_tensor_is_read_in_its_own_order() -> None:
    tensor = np.arange(24, dtype=np.float32).reshape(4, 6)[::2, ::-1].T
    assert (switch_sum([tensor]) == tensor).all()
