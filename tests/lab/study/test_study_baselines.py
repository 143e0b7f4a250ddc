"""The baselines: what they send, and what they keep, of gradients that can be worked out by hand."""

from __future__ import annotations

import pytest
import torch

from p4reduce.compressors import Compressor
from p4reduce.testing.in_process import exchange_all, groups
from p4reduce_lab.study.compressors import OneBit, TopK, to_one_bit


def means(compressors: list[Compressor], *gradients: torch.Tensor) -> list[torch.Tensor]:
    """Exchange a gradient of each rank; return every rank's mean."""
    given = [{"weight": gradient} for gradient in gradients]
    return [one.means["weight"] for one in exchange_all(compressors, given, groups(len(gradients)))]


def test_one_bit_is_decoded_to_the_mean_above_or_below_zero_of_its_row() -> None:
    values = torch.tensor([1.0, 3.0, -2.0, -4.0, 5.0, 1.0, 3.0, 3.0])
    assert to_one_bit(values, 2).tolist() == [2.0, 2.0, -3.0, -3.0, 3.0, 3.0, 3.0, 3.0]
    assert to_one_bit(torch.zeros(4), 2).tolist() == [0.0] * 4


def test_one_bit_quantizes_the_mean_again_and_keeps_both_errors() -> None:
    ranks: list[Compressor] = [OneBit(), OneBit()]
    first, second = torch.tensor([[1.0, 3.0, -2.0, -4.0]]), torch.tensor([[2.0, -2.0, 2.0, -2.0]])
    # bits: 2 2 -3 -3 and 2 -2 2 -2; their mean 2 0 -0.5 -2.5; its bits 2 -1 -1 -1
    results = means(ranks, first, second)
    assert all(result.tolist() == [[2.0, -1.0, -1.0, -1.0]] for result in results)
    own, of_mean = ranks[0].residue("weight").view(2, 4)
    assert own.tolist() == [-1.0, 1.0, 1.0, -1.0] and of_mean.tolist() == [0.0, 1.0, 0.5, -1.5]
    assert ranks[1].residue("weight").view(2, 4)[1].tolist() == of_mean.tolist()
    # a gradient of zero sends what was kept
    zero = torch.zeros(1, 4)
    # bits of rank 0: -1 1 1 -1, of rank 1 zeros: mean -0.5 0.5 0.5 -0.5, with the mean's error -0.5 1.5 1 -2
    assert means(ranks, zero, zero)[0].tolist() == [[-1.25, 1.25, 1.25, -1.25]]
    assert ranks[0].rate_of() == pytest.approx(32 * 4 / (4 + 64))


def test_one_bit_is_unbiased_over_steps_only_with_error_feedback() -> None:
    generator = torch.Generator().manual_seed(5)
    given = torch.randn(3, 20, generator=generator)
    errors = {}
    for feedback in (True, False):
        ranks: list[Compressor] = [OneBit(feedback=feedback), OneBit(feedback=feedback)]
        total = sum(means(ranks, given, given.flip(1))[0] for _ in range(200))
        errors[feedback] = float((total / 200 - (given + given.flip(1)) / 2).norm() / given.norm())
    assert errors[True] < 0.05 < 0.3 < errors[False]
    assert not ranks[0].residue("weight").any()


def test_top_k_sends_the_largest_and_keeps_or_drops_the_rest() -> None:
    gradient = torch.tensor([[0.1, -5.0, 3.0, 0.2]])
    for feedback, kept in ((True, [0.1, 0.0, 3.0, 0.2]), (False, [0.0] * 4)):
        ranks: list[Compressor] = [TopK(ratio=0.25, feedback=feedback) for _ in range(2)]
        assert means(ranks, gradient, gradient)[1].tolist() == [[0.0, -5.0, 0.0, 0.0]]
        assert ranks[0].residue("weight").tolist() == pytest.approx(kept)
        assert ranks[0].rate_of() == 2.0  # a place and a float for one of four
