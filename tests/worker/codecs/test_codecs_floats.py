"""Floats, also in lanes of 8 or 16 bits: the stated error, what is said to be sent, limits, and what is refused.

How far sums are from the exact ones, by a switch in this process: the bound in docs/torch-backend.md, and the tables of
error norms and of limits in docs/compressors.md.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from p4reduce.codecs import Floats, Summed, kernels
from p4reduce.codecs.arrays import COUNT_SHIFT, NO_LIMITS
from p4reduce.codecs.formats import Bits, headroom_bits, levels, underflow_limits
from p4reduce.errors import LaneOverflowError, UnderflowError
from p4reduce.testing.local_group import LocalGroup
from p4reduce_contracts.wire.geometry import DEFAULT
from p4reduce_contracts.wire.lanes import WIDTHS, lane_limit, lanes_per_word
from p4reduce_contracts.wire.numbers import MAX_RANKS
from rigs.float_sums import by_numpy, summed_words

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


BITS: Final[tuple[Bits, ...]] = (32, 16, 8)
EXPONENTS = {torch.float32: (-148, -120, 0, 120), torch.bfloat16: (-120, 0, 120), torch.float16: (-20, 0, 12)}
LEAST = {torch.float16: 2.0**-14, torch.bfloat16: 2.0**-112, torch.float32: 2.0**-112}
"""A block of smaller numbers counts as one whose largest is this."""
BLOCK_WORDS = 32
BLOCKS = 6


def bounds(tensors: list[torch.Tensor], bits: Bits) -> torch.Tensor:
    """Return N · 2^-m · M of each number, m = 30, 14 or 6 less the bits that hold N ranks, M the block's largest."""
    ranks = len(tensors)
    largest = torch.stack([tensor.double().abs() for tensor in tensors]).amax(0)
    largest = largest.clamp(min=LEAST[tensors[0].dtype]).view(-1, BLOCK_WORDS * 32 // bits).amax(1)
    of_block = ranks * 2.0 ** (math.ceil(math.log2(ranks)) - bits + 2) * largest
    return of_block.repeat_interleave(BLOCK_WORDS * 32 // bits)


def made(rank: int, dtype: torch.dtype, bits: Bits, exponent: int) -> torch.Tensor:
    """Return numbers of many sizes, of which each block's largest is a little more than a power of two."""
    generator = torch.Generator().manual_seed(rank)
    per_block = BLOCK_WORDS * 32 // bits
    powers = torch.randint(-12, 0, (BLOCKS, per_block), generator=generator)
    numbers = torch.ldexp(torch.rand(BLOCKS, per_block, generator=generator) - 0.5, powers + exponent)
    numbers[:, 0] = 1.01 * 2.0**exponent
    return numbers.reshape(-1).to(dtype)


def summed(group: LocalGroup, tensors: list[torch.Tensor], bits: Bits | None) -> torch.Tensor:
    return group.run(lambda comm: comm.all_reduce(tensors[comm.rank], bits=bits))[0].double()


@pytest.mark.parametrize("ranks", [2, 5])
def test_sums_are_within_the_documented_bound_and_reach_it(ranks: int) -> None:
    with LocalGroup(ranks) as group:
        for (dtype, exponents), bits in product(EXPONENTS.items(), BITS):
            for exponent in exponents:
                other = [made(rank, dtype, bits, exponent) for rank in range(ranks)]
                same = other[:1] * ranks  # whose errors add up
                for tensors in (other, same):
                    exact, bound = torch.stack(tensors).double().sum(0), bounds(tensors, bits)
                    error = (summed(group, tensors, bits) - exact).abs()
                    kind = torch.finfo(dtype)
                    rounding = kind.eps / 2 * (exact.abs() + bound + kind.smallest_normal)
                    assert (error <= bound + rounding).all(), (bits, dtype, exponent)
                if exponent == 0 and dtype == torch.float32:
                    assert (error / (bound + rounding)).max() > 0.8, bits


@pytest.mark.parametrize(
    ("tensor", "bits", "wanted"),
    [
        (torch.tensor([1000, 0.001, 1, 1e-6], dtype=torch.bfloat16), None, [2000, 0, 2, 0]),
        (torch.tensor([1000, 0.001, 1, 1e-6], dtype=torch.bfloat16), 32, [2000, 0.002, 2, 3.8e-6]),
        (torch.tensor([1e30, 1.0]), None, [2e30, 0]),
    ],
)
def test_the_examples_in_the_documentation(tensor: torch.Tensor, bits: Bits | None, wanted: list[float]) -> None:
    with LocalGroup(2) as group:
        found = summed(group, [tensor, tensor], bits)
    torch.testing.assert_close(found, torch.tensor(wanted, dtype=torch.float64), rtol=0.01, atol=0)


@pytest.mark.parametrize("ranks", [2, 5])
def test_the_numbers_that_become_0_are_counted(ranks: int) -> None:
    """Blocks of every exponent have numbers at the limit, above it, and zeros, of both signs."""
    limits = underflow_limits(32, ranks)
    blocks = np.zeros((255, BLOCK_WORDS), np.uint32)
    blocks[:, 0] = np.arange(255) << 23 | 1
    blocks[:, 1], blocks[:, 2], blocks[:, 4] = limits[:255], limits[:255] + 1, 1
    blocks[:, 5:10] = blocks[:, :5] | 0x80000000
    numbers = blocks.reshape(-1).view(np.float32)
    exponents, nonzero = np.empty(255, np.uint8), np.empty(255, np.bool_)
    found, unlimited = (
        kernels.scan(numbers.view(np.uint32), BLOCK_WORDS, each, exponents, nonzero) >> COUNT_SHIFT
        for each in (limits, NO_LIMITS)
    )
    with LocalGroup(ranks) as group:
        total = summed(group, [torch.from_numpy(numbers)] * ranks, 32).numpy()
    assert found == np.count_nonzero((numbers != 0) & (total == 0)) > 900
    assert unlimited == 0


def test_more_than_one_in_1000_that_would_become_0_are_refused_where_that_is_asked() -> None:
    numbers = np.concatenate([np.zeros(99), np.ones(999), [1e-12]]).astype(np.float32)
    Floats(numbers, refuse_underflow=True).bind(2, BLOCK_WORDS, False)
    Floats(numbers[100:], bits=16, refuse_underflow=True).bind(2, BLOCK_WORDS, False)
    Floats(numbers[100:]).bind(2, BLOCK_WORDS, False)
    with pytest.raises(UnderflowError, match=r"1 of the 999 numbers of x that are not 0 would become 0"):
        Floats(numbers[100:], name="x", refuse_underflow=True).bind(2, BLOCK_WORDS, False)


DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "compressors.md"
RANKS = (2, 8, 32)
ELEMENTS = 1 << 16
SEEDS = 5


def by_ring(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return the sum of a ring, in which each part passes all ranks and is rounded to their type at each hop."""
    parts = zip(*(tensor.tensor_split(len(tensors)) for tensor in tensors), strict=True)
    return torch.cat([functools.reduce(torch.add, (*part[first:], *part[:first])) for first, part in enumerate(parts)])


def relative_error(ranks: int, total: Callable[[list[torch.Tensor]], torch.Tensor], kind: torch.dtype) -> float:
    """Return |sum - exact sum| / |exact sum| of ranks' normally distributed numbers, the median over the seeds."""
    errors = []
    for seed in range(SEEDS):
        generator = torch.Generator().manual_seed(seed)
        given = torch.randn((ranks, ELEMENTS), generator=generator).to(kind)
        exact = given.double().sum(0)
        errors.append(float((total(list(given)).double() - exact).norm() / exact.norm()))
    return statistics.median(errors)


def by_switch(bits: int) -> Callable[[list[torch.Tensor]], torch.Tensor]:
    return lambda tensors: by_numpy(tensors, bits, DEFAULT.block_words)


def table() -> str:
    """Return the table's rows."""
    found = {str(bits): [relative_error(ranks, by_switch(bits), torch.float32) for ranks in RANKS] for bits in BITS}
    return "\n".join(f"| {name} | {' | '.join(f'{error:.1e}' for error in errors)} |" for name, errors in found.items())


def test_the_table_of_error_norms_is_that_of_the_formats() -> None:
    assert table() in PAGE.read_text(encoding="utf-8")


def test_a_sum_of_bfloat16_is_nearer_to_the_exact_one_than_a_ring_s() -> None:
    """In 16 bits, rounded once; the ring rounds it at each hop. The two rows are in docs/performance.md."""
    sums = {"p4reduce": by_switch(16), "a ring": by_ring}
    found = {name: [relative_error(ranks, total, torch.bfloat16) for ranks in RANKS] for name, total in sums.items()}
    page = (DOCS / "performance.md").read_text(encoding="utf-8")
    for name, errors in found.items():
        assert f"| {name} | {' | '.join(f'{error:.1e}' for error in errors)} |" in page, (name, errors)
    assert all(own < other for own, other in zip(*(errors[1:] for errors in found.values()), strict=True))


def test_the_table_of_lanes_is_what_a_lane_holds() -> None:
    ranks = {bits: f"{min(MAX_RANKS, lane_limit(bits)):,}" for bits in WIDTHS}
    small = [bits for bits in WIDTHS if bits < 16]
    assert ranks[16] == ranks[32]
    rows = [
        ("bits", *small, "16, 32"),
        ("---",) * (len(small) + 2),
        ("lanes a word", *map(lanes_per_word, small), f"{lanes_per_word(16)}, {lanes_per_word(32)}"),
        ("ranks", *(ranks[bits] for bits in small), ranks[16]),
    ]
    table = "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)
    assert table in PAGE.read_text(encoding="utf-8")


def units(bits: int, ranks: int) -> str:
    """Return the cell of the table of units."""
    try:
        return f"{levels(bits, ranks):,}"
    except LaneOverflowError:
        return "refused"


def test_the_table_of_units_is_what_a_rank_sends() -> None:
    first_and_last = ((2, 2), (3, 4), (5, 8), (9, 16), (17, 32), (33, 64), (513, 1024))
    for bits in (8, 16):
        cells = [{units(bits, ranks) for ranks in pair} for pair in first_and_last]
        assert all(len(cell) == 1 for cell in cells)
        assert f"| {bits} bits | {' | '.join(cell.pop() for cell in cells)} |" in PAGE.read_text(encoding="utf-8")
