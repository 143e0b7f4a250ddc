"""The form shared, of ScaleCom and AdaComp, against numpy: choices, leaders in turn, the low-pass filter."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch

from p4reduce.compressors import AdaComp, Compressor, Policy, ScaleCom
from rigs.limits import LIMIT_S
from rigs.ranks import SHAPES, choose, gradients_of, over_switch, residue_of

CHUNK = 25
SPARSE = ("conv.weight", "fc.weight")


def make(**options: float) -> ScaleCom:
    return ScaleCom(Policy(conv=CHUNK, linear=CHUNK), **{"value_bits": 32, **options})


METHODS: dict[str, tuple[Callable[[], Compressor], bool, float]] = {
    **{f"scalecom, b {b}": (partial(make, b=b, warmup_steps=warmup), True, b) for b, warmup in ((1.0, 0), (0.1, 2))},
    "adacomp, shared": (lambda: AdaComp(Policy(conv=CHUNK, linear=CHUNK), "shared", value_bits=32), False, 1.0),
}
"""Method -> its maker, whether it chooses the largest of a chunk alone, and b."""


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("world_size", [1, 2, 5])
def test_sums_and_residues_are_those_of_the_definition(method: str, world_size: int) -> None:
    """Leaders take turns; steps of a warm-up count."""
    maker, largest_only, b = METHODS[method]
    compressors = [maker() for _ in range(world_size)]
    memory = {name: np.zeros((world_size, int(np.prod(SHAPES[name])))) for name in SPARSE}
    for step, found in enumerate(over_switch(compressors, gradients_of, 7)):
        for name in SPARSE:
            g = np.stack([gradients_of(rank, step)[name].flatten().double().numpy() for rank in range(world_size)])
            sent, leader = g, step % world_size
            if step >= compressors[0].warmup_steps:
                p = memory[name] + g
                sent = np.where(choose(memory[name][leader], g[leader], CHUNK, largest_only)[1], p, 0)
                memory[name] = (1 - b) * memory[name] + b * (p - sent)
                assert sent.any() and not sent.all()
            for rank, (outcome, _) in enumerate(found):
                mean = outcome.means[name]
                assert torch.equal(mean, found[0][0].means[name])
                np.testing.assert_allclose(mean.flatten().numpy(), sent.mean(axis=0), rtol=1e-5, atol=1e-6)
                if step >= compressors[0].warmup_steps:
                    kept = residue_of(compressors[rank], name).numpy()
                    np.testing.assert_allclose(kept, memory[name][rank], rtol=1e-5, atol=1e-5)


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
