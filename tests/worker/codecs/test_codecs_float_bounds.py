"""How far sums of floats are from the exact ones, by a switch in this process: the bound in docs/torch-backend.md."""

from __future__ import annotations

import math
from itertools import product
from typing import Final

import pytest
import torch

from p4reduce.codecs.formats import Bits
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
