"""How far sums of floats are from the exact ones, by a switch in this process: the bound in docs/torch-backend.md."""

from __future__ import annotations

import math
from itertools import product
from typing import Final

import numpy as np
import pytest
import torch

from p4reduce.codecs.arrays import exponents_of
from p4reduce.codecs.floats import Floats
from p4reduce.codecs.formats import Bits, underflow_limits
from p4reduce.errors import UnderflowError
from p4reduce.testing.local_group import LocalGroup

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
    found = exponents_of(numbers, BLOCK_WORDS, limits).underflows
    with LocalGroup(ranks) as group:
        total = summed(group, [torch.from_numpy(numbers)] * ranks, 32).numpy()
    assert found == np.count_nonzero((numbers != 0) & (total == 0)) > 900
    assert exponents_of(numbers, BLOCK_WORDS).underflows == 0


def test_more_than_one_in_1000_that_would_become_0_are_refused_where_that_is_asked() -> None:
    numbers = np.concatenate([np.zeros(99), np.ones(999), [1e-12]]).astype(np.float32)
    Floats(numbers, refuse_underflow=True).bind(2, BLOCK_WORDS, False)
    Floats(numbers[100:], bits=16, refuse_underflow=True).bind(2, BLOCK_WORDS, False)
    Floats(numbers[100:]).bind(2, BLOCK_WORDS, False)
    with pytest.raises(UnderflowError, match=r"1 of the 999 numbers of x that are not 0 would become 0"):
        Floats(numbers[100:], name="x", refuse_underflow=True).bind(2, BLOCK_WORDS, False)
