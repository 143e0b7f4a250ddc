"""Block sparsifiers: which blocks they choose, what travels, and that nothing is lost."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from p4reduce.compressors import BlockSparsifier, Form, OmniReduce, Policy, Values
from rigs.ranks import begun, compress_alone, gaussian, group, residue_of

FOUR = Policy(linear=4)
"""A policy with blocks of four elements."""
SIZES = [1.0, 5.0, 0.0, 3.0, 4.0, 2.0]
"""The norms of the six blocks of `example`."""


def example() -> torch.Tensor:
    """Blocks of four, whose L2 norms are SIZES, and a last one of two elements with a norm of 4.5."""
    blocks = [torch.tensor([0.8, 0.0, -0.6, 0.0]) * size for size in SIZES]
    return torch.cat([*blocks, torch.tensor([0.0, -4.5])]).view(1, -1)


def chosen(compressor: BlockSparsifier, gradient: torch.Tensor) -> list[int]:
    """The blocks of four that one rank sends."""
    message = compress_alone(compressor, "w", gradient, Form.SUM).message  # all of it stays in the residue
    assert isinstance(message, Values)
    flat = gradient.flatten()
    blocks = sorted({index // 4 for index in message.values.nonzero().flatten().tolist()})
    for block in blocks:
        part = slice(4 * block, 4 * block + 4)
        assert torch.equal(message.values[part], flat[part])  # whole, on a first step
    return blocks


def linear(weights: list[float]) -> nn.Module:
    """A module whose `w` has blocks of these norms."""
    module = nn.Module()
    flat = torch.cat([torch.tensor([0.0, 1.0, 0.0, 0.0]) * weight for weight in weights])
    module.w = nn.Parameter(flat.view(1, -1)[:, :26])
    return module


def test_the_blocks_selected_are_those_of_the_definition() -> None:
    assert chosen(OmniReduce("threshold", FOUR, threshold=4.0), example()) == [1, 4, 6]
    assert chosen(OmniReduce("threshold", FOUR, threshold=5.1), example()) == []
    assert chosen(OmniReduce("top-k", FOUR, ratio=0.3), example()) == [1, 6]  # 0.3 of 7 blocks
    assert chosen(OmniReduce("top-k", FOUR, ratio=1e-6), example()) == [1]  # one at least
    assert chosen(OmniReduce("top-k", FOUR, ratio=1.0), example()) == [0, 1, 3, 4, 5, 6]  # block 2 is all zero
    ratio = OmniReduce("top-k-ratio", FOUR, ratio=0.3)
    ratio.bind(linear([0.1, 100.0, 1.0, 1.0, 1.0, 0.1, 100.0]))  # ratios 10, 0.05, 0, 3, 4, 20, 0.045
    assert chosen(ratio, example()) == [0, 5]
    ratio.bind(linear([0.1, 0.0, 1.0, 1.0, 1.0, 0.1, 100.0]))  # a block of zeros among the weights
    residue_of(ratio, "w").zero_()
    assert chosen(ratio, example()) == [1, 5]


def test_random_k_is_the_same_on_all_ranks_and_new_each_step() -> None:
    gradient = gaussian((10, 40), 1)  # a hundred blocks
    one, two, other = (OmniReduce("random-k", FOUR, ratio=0.1, seed=seed) for seed in (3, 3, 4))
    seen = []
    for _ in range(3):
        blocks = [chosen(each, gradient) for each in (one, two, other)]
        assert blocks[0] == blocks[1] != blocks[2]
        assert len(blocks[0]) == 10
        seen.append(blocks[0])
        for each in (one, two, other):
            residue_of(each, "w").zero_()
    assert seen[0] != seen[1] != seen[2]


def test_the_ratio_to_the_weights_needs_the_module() -> None:
    with pytest.raises(ValueError, match="top-k-ratio needs the weights of 'w': give the module"):
        ratio = OmniReduce("top-k-ratio")
        ratio.compress([begun(ratio, "w", example(), Form.SUM)])
    ratio = OmniReduce("top-k-ratio", FOUR)
    with pytest.raises(ValueError, match="top-k-ratio compares gradients with weights: give DDPState module=m"):
        ratio.check(group())
    ratio.bind(linear([1.0] * 7))
    ratio.check(group())


@pytest.mark.parametrize(("at", "elements"), [(256, 1), (3, 256)])
def test_the_effective_rate_counts_the_elements_of_a_partial_last_block(at: int, elements: int) -> None:
    gradient = torch.zeros(1, 257)
    gradient[0, at] = 5.0
    compressor = OmniReduce(ratio=0.5)
    message = compress_alone(compressor, "w", gradient, Form.SUM).message
    assert isinstance(message, Values) and message.values.nonzero().tolist() == [[at]]
    assert compressor.rate_of() == 257 / elements


def test_the_default_block_is_256_elements_in_every_kind_of_layer() -> None:
    compressor = OmniReduce(ratio=0.5)
    message = compress_alone(compressor, "w", torch.arange(1.0, 1025).view(4, 4, 64), Form.SUM).message
    assert isinstance(message, Values)
    assert message.values.nonzero().flatten().tolist() == list(range(512, 1024))
