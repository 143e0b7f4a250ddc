"""AdaComp's three forms against a direct computation of what each stands for, over a switch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from p4reduce.compressors import AdaComp
from rigs.ranks import SHAPES, by_the_book, gradients_of, over_switch, residue_of

BINS = {"conv.weight": 50, "fc.weight": 500}
STEPS = 5


def flat(rank: int, step: int, name: str) -> np.ndarray:
    return gradients_of(rank, step)[name].flatten().double().numpy()


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_gather_is_as_published_each_rank_with_its_own_scale(world_size: int) -> None:
    compressors = [AdaComp(form="gather") for _ in range(world_size)]
    residues = {name: [np.zeros(np.prod(SHAPES[name]))] * world_size for name in BINS}
    for step, found in enumerate(over_switch(compressors, gradients_of, STEPS)):
        for name, size in BINS.items():
            sent = []
            for rank in range(world_size):
                given = flat(rank, step, name)
                signs, scale = by_the_book(residues[name][rank], given, size)
                sent.append(signs * scale)
                residues[name][rank] = residues[name][rank] + given - sent[-1]
            mean = found[0][0].means[name]
            np.testing.assert_allclose(mean.flatten().numpy(), np.mean(sent, axis=0), rtol=1e-5, atol=1e-6)
            for rank, (outcome, _) in enumerate(found):
                assert torch.equal(outcome.means[name], mean)
                kept = residue_of(compressors[rank], name).numpy()
                np.testing.assert_allclose(kept, residues[name][rank], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("levels", [1, 6])
@pytest.mark.parametrize("world_size", [1, 2, 4, 9])
def test_sum_uses_what_the_ranks_agreed_on_a_step_before(world_size: int, levels: int) -> None:
    """The first scales are agreed on before the first step. With levels, rank w sends k_w parts of the largest."""
    compressors = [AdaComp(form="sum", levels=levels) for _ in range(world_size)]
    residues = {name: [np.zeros(np.prod(SHAPES[name]))] * world_size for name in BINS}
    agreed: dict[str, float] = {}
    together = np.mean if levels == 1 else np.max
    for step, found in enumerate(over_switch(compressors, gradients_of, STEPS)):
        for name, size in BINS.items():
            given = [flat(rank, step, name) for rank in range(world_size)]
            chosen = [by_the_book(*both, size) for both in zip(residues[name], given, strict=True)]
            scales = [scale for _, scale in chosen]
            unit = agreed.get(name, float(together(scales))) / levels
            weights = [min(levels, max(1, round(scale / unit))) for scale in scales]
            sent = [signs * weight * unit for (signs, _), weight in zip(chosen, weights, strict=True)]
            residues[name] = [sum(one) for one in zip(residues[name], given, [-part for part in sent], strict=True)]
            agreed[name] = float(together(scales))
            mean = found[0][0].means[name]
            np.testing.assert_allclose(mean.flatten().numpy(), np.mean(sent, axis=0), rtol=1e-5, atol=1e-6)
            for rank, (outcome, _) in enumerate(found):
                assert torch.equal(outcome.means[name], mean)
                assert compressors[rank].state_of(name).scale == compressors[0].state_of(name).scale
                assert compressors[rank].state_of(name).scale == pytest.approx(agreed[name], rel=1e-5)
                kept = residue_of(compressors[rank], name).numpy()
                np.testing.assert_allclose(kept, residues[name][rank], rtol=1e-5, atol=1e-5)
    assert levels == 1 or world_size == 1 or max(weights) > 1


@pytest.mark.parametrize("world_size", [1, 3, 4])
def test_shared_takes_the_choice_of_one_rank_in_turn(world_size: int) -> None:
    compressors = [AdaComp(form="shared", value_bits=32) for _ in range(world_size)]
    residues = {name: [np.zeros(np.prod(SHAPES[name]))] * world_size for name in BINS}
    for step, found in enumerate(over_switch(compressors, gradients_of, STEPS)):
        for name, size in BINS.items():
            given = [flat(rank, step, name) for rank in range(world_size)]
            leader = step % world_size
            chosen = by_the_book(residues[name][leader], given[leader], size)[0] != 0
            totals = [sum(both) for both in zip(residues[name], given, strict=True)]
            sent = [np.where(chosen, total, 0) for total in totals]
            residues[name] = [total - part for total, part in zip(totals, sent, strict=True)]
            mean = found[0][0].means[name]
            np.testing.assert_allclose(mean.flatten().numpy(), np.mean(sent, axis=0), rtol=1e-5, atol=1e-6)
            for rank, (outcome, _) in enumerate(found):
                assert torch.equal(outcome.means[name], mean)
                kept = residue_of(compressors[rank], name).numpy()
                np.testing.assert_allclose(kept, residues[name][rank], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bits", [8, 16])
def test_shared_with_narrow_values_keeps_their_rounding(bits: int) -> None:
    """What a narrow lane rounds away is in the residue, so the means and the residues still make up the gradients."""
    compressors = [AdaComp(form="shared", value_bits=bits) for _ in range(4)]
    received = sum(found[0][0].means["fc.weight"].double() for found in over_switch(compressors, gradients_of, 20))
    given = sum(gradients_of(rank, step)["fc.weight"].double() for rank in range(4) for step in range(20))
    left = sum(residue_of(one, "fc.weight").double() for one in compressors).view(10, 120)
    torch.testing.assert_close(4 * received + left, given, rtol=0, atol=1e-3)
    exact = [AdaComp(form="shared", value_bits=32) for _ in range(4)]
    for _ in over_switch(exact, gradients_of, 20):
        pass
    assert not torch.equal(residue_of(exact[0], "fc.weight"), residue_of(compressors[0], "fc.weight"))


def unequal(rank: int, step: int) -> dict[str, torch.Tensor]:
    gradient = gradients_of(rank, step)["fc.weight"]
    return {"fc.weight": gradient * 50 if rank == 2 else gradient}


def test_levels_keep_the_residues_of_unequal_ranks_small() -> None:
    """One of four ranks has gradients 50 times larger. A scale for all, without levels, is 13 times too large for three
    of them, whose residues it blows up, and 4 times too small for the other (until its residue has grown)."""
    norms = {}
    for levels in (1, 100):
        compressors = [AdaComp(form="sum", levels=levels) for _ in range(4)]
        for _ in over_switch(compressors, unequal, 60):
            pass
        norms[levels] = [residue_of(one, "fc.weight").norm().item() for one in compressors]
    assert all(norms[100][rank] < norms[1][rank] / 3 for rank in (0, 1, 3)), norms
    assert norms[100][2] < 0.9 * norms[1][2]


def test_the_integers_of_levels_stay_within_their_bound() -> None:
    """Also when the scale grows a thousandfold from one step to the next, where the unit is a step behind."""

    def growing(rank: int, step: int) -> dict[str, torch.Tensor]:
        return {"fc.weight": gradients_of(rank, step)["fc.weight"] * 1000.0**step}

    compressors = [AdaComp(form="sum", levels=3) for _ in range(5)]  # 5 x 3 = 15 fills lanes of five bits
    largest = []
    scale = None
    for found in over_switch(compressors, growing, 4):
        if scale is not None:
            sums = found[0][0].means["fc.weight"].double() * 5 / (scale / 3)
            torch.testing.assert_close(sums, sums.round(), rtol=0, atol=1e-3)
            largest.append(int(sums.abs().max()))
        scale = compressors[0].state_of("fc.weight").scale
    assert max(largest) <= 15 and min(largest) >= 3
