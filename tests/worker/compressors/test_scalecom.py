"""ScaleCom against its formulas in numpy: chunk-wise largest elements, leaders in turn, the low-pass filter."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from p4reduce.compressors import Policy, ScaleCom
from rigs.limits import LIMIT_S
from rigs.ranks import SHAPES, gradients_of, over_switch, residue_of

CHUNK = 25
SPARSE = ("conv.weight", "fc.weight")


def make(**options: float) -> ScaleCom:
    return ScaleCom(Policy(conv=CHUNK, linear=CHUNK), **{"value_bits": 32, **options})


def largest(values: np.ndarray, per_chunk: int) -> np.ndarray:
    """The chosen elements, bool, chunk by chunk."""
    chosen = np.zeros(len(values), bool)
    for start in range(0, len(values), CHUNK):
        order = np.argsort(-np.abs(values[start : start + CHUNK]))[:per_chunk]
        chosen[start + order] = True
    return chosen & (values != 0)


@pytest.mark.parametrize("b", [1.0, 0.1])
@pytest.mark.parametrize("per_chunk", [1, 3])
@pytest.mark.parametrize("world_size", [1, 2, 5])
def test_sums_and_residues_follow_the_formulas_of_the_paper(b: float, per_chunk: int, world_size: int) -> None:
    compressors = [make(b=b, per_chunk=per_chunk) for _ in range(world_size)]
    memory = {name: np.zeros((world_size, int(np.prod(SHAPES[name])))) for name in SPARSE}
    for step, found in enumerate(over_switch(compressors, gradients_of, 7)):
        for name in SPARSE:
            g = np.stack([gradients_of(rank, step)[name].flatten().double().numpy() for rank in range(world_size)])
            p = memory[name] + g
            chosen = largest(p[step % world_size], per_chunk)
            sent = np.where(chosen, p, 0)
            memory[name] = (1 - b) * memory[name] + b * (p - sent)
            assert chosen.sum() == per_chunk * -(-len(chosen) // CHUNK)
            for rank, (outcome, _) in enumerate(found):
                mean = outcome.means[name]
                assert torch.equal(mean, found[0][0].means[name])
                np.testing.assert_allclose(mean.flatten().numpy(), sent.mean(axis=0), rtol=1e-5, atol=1e-6)
                kept = residue_of(compressors[rank], name).numpy()
                np.testing.assert_allclose(kept, memory[name][rank], rtol=1e-5, atol=1e-5)


def test_means_and_residues_add_up_to_the_gradients_only_without_the_filter() -> None:
    for b, value_bits, lost in ((1.0, 32, False), (1.0, 16, False), (1.0, 8, False), (0.1, 32, True)):
        compressors = [make(b=b, value_bits=value_bits) for _ in range(3)]
        received = sum(found[0][0].means["fc.weight"].double() for found in over_switch(compressors, gradients_of, 20))
        given = sum(gradients_of(rank, step)["fc.weight"].double() for rank in range(3) for step in range(20))
        left = sum(residue_of(one, "fc.weight").double() for one in compressors).view(SHAPES["fc.weight"])
        assert (float((3 * received + left - given).abs().max()) > 1e-3) == lost


@pytest.mark.parametrize("warmup_steps", [0, 1, 3])
def test_warm_up_is_dense_for_exactly_that_many_steps_and_leaders_count_from_the_start(warmup_steps: int) -> None:
    compressors = [make(warmup_steps=warmup_steps) for _ in range(3)]
    memory = np.zeros((3, 1200))
    for step, found in enumerate(over_switch(compressors, gradients_of, 6)):
        g = np.stack([gradients_of(rank, step)["fc.weight"].flatten().double().numpy() for rank in range(3)])
        if step < warmup_steps:
            assert found[0][1].forms == {}
            assert compressors[0].residue("fc.weight") is None
            mean = g.mean(axis=0)
        else:
            chosen = largest((memory + g)[step % 3], 1)
            mean = np.where(chosen, memory + g, 0).mean(axis=0)
            memory += 0.1 * (g - np.where(chosen, memory + g, 0))
        np.testing.assert_allclose(found[0][0].means["fc.weight"].flatten().numpy(), mean, rtol=1e-4, atol=1e-5)


def test_a_partial_chunk_and_zeros_give_no_more_than_they_have() -> None:
    values = torch.zeros(1, 60)
    values[0, [3, 55]] = torch.tensor([2.0, -1.0])  # chunk 0, and chunk 2, which has ten elements
    for per_chunk in (1, 3, 40):
        found = list(over_switch([make(per_chunk=per_chunk)], lambda rank, step: {"w": values}, 1))
        assert found[0][0][0].means["w"].nonzero()[:, 1].tolist() == [3, 55]


def test_a_leader_with_a_zero_gradient_selects_nothing() -> None:
    def source(rank: int, step: int) -> dict[str, torch.Tensor]:
        gradient = gradients_of(rank, step)["fc.weight"]
        return {"w": torch.zeros_like(gradient) if rank == 0 else gradient}

    compressors = [make(b=1.0) for _ in range(2)]
    means = [found[0][0].means["w"] for found in over_switch(compressors, source, 4)]
    assert [bool(mean.any()) for mean in means] == [False, True, False, True]


def test_a_selection_encoded_as_zeros_does_not_affect_the_next_leader() -> None:
    """A choice of every chunk's first element is nothing but zeros, which do not travel; another rank leads the next
    parameter, which has had a step less."""
    old = torch.full((3000, 100), 0.01)
    old[:, 0] = 1
    new = torch.randn(30, 100, generator=torch.Generator().manual_seed(1))

    def source(_rank: int, step: int) -> dict[str, torch.Tensor]:
        return {"old": old, "new": new} if step else {"old": old}

    found = list(over_switch([ScaleCom() for _ in range(2)], source, 2, timeout_s=LIMIT_S))[1]
    for outcome, _ in found:
        assert torch.count_nonzero(outcome.means["old"]) == 3000 and (outcome.means["old"][:, 0] > 0.9).all()
        assert torch.count_nonzero(outcome.means["new"]) == 30


def test_bad_settings_are_refused() -> None:
    for b in (0.0, -0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match="b is .*; give more than 0, at most 1"):
            ScaleCom(b=b)
    with pytest.raises(ValueError, match="per_chunk is 0"):
        ScaleCom(per_chunk=0)
    with pytest.raises(ValueError, match="value_bits is 4"):
        ScaleCom(value_bits=4)
