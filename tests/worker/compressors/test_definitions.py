"""Against their definitions in numpy: the form shared, of ScaleCom and AdaComp, and momentum correction.

Choices, leaders in turn, the low-pass filter; what is compressed with momentum, kept and forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from p4reduce.compressors import AdaComp, Compressor, Policy, ScaleCom, by_name
from p4reduce.errors import InvalidTensorError
from p4reduce.testing.in_process import exchange_all, groups
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


MOMENTUM = 0.9
RANKS, STEPS = 3, 6


def velocity_of(compressor: Compressor, key: str) -> torch.Tensor:
    velocity = compressor.state_of(key).velocity
    assert velocity is not None
    return velocity


def test_adacomp_with_momentum_by_its_definition() -> None:
    """Means, residues and velocities of every step and rank; the biases are dense."""
    size = 30
    compressors = [AdaComp(Policy(conv=size, linear=size), "gather", momentum=MOMENTUM) for _ in range(RANKS)]
    zeros = {key: np.zeros((RANKS, int(np.prod(shape)))) for key, shape in SHAPES.items()}
    velocity, residue = ({key: one.copy() for key, one in zeros.items()} for _ in range(2))
    for step, found in enumerate(over_switch(compressors, gradients_of, STEPS)):
        for key in SHAPES:
            sent = np.zeros_like(velocity[key])
            for rank in range(RANKS):
                gradient = gradients_of(rank, step)[key].numpy().reshape(-1)
                v = velocity[key][rank] = MOMENTUM * velocity[key][rank] + (1 - MOMENTUM) * gradient
                sent[rank] = v
                if key.endswith("weight"):
                    total, chosen, largest = choose(residue[key][rank], v, size)
                    signs = np.sign(total) * chosen
                    sent[rank] = largest.mean() * signs
                    residue[key][rank] += v - sent[rank]
                    velocity[key][rank] = np.where(signs == 0, v, 0)
                    assert 0 < np.count_nonzero(signs) < len(signs)
                    near(residue_of(compressors[rank], key), residue[key][rank])
                near(velocity_of(compressors[rank], key), velocity[key][rank])
            for outcome, _ in found:
                near(outcome.means[key].reshape(-1), sent.mean(0))


def near(found: torch.Tensor, wanted: Any) -> None:
    torch.testing.assert_close(found.double(), torch.from_numpy(wanted), rtol=1e-5, atol=1e-6)


def test_a_velocity_that_overflows_is_refused_and_not_kept() -> None:
    compressor = AdaComp(momentum=0.01)
    with pytest.raises(InvalidTensorError, match="the velocity of 'w' overflows float32"):
        for _ in over_switch([compressor], lambda rank, step: {"w": torch.full((6,), 3e38 * (-1) ** step)}, 2):
            pass
    assert compressor.state_of("w").steps == 1 and velocity_of(compressor, "w").isfinite().all()


def test_a_state_with_momentum_is_refused_where_there_is_none() -> None:
    for one, other, momentum in ((AdaComp(), AdaComp(momentum=0.9), 0.9), (AdaComp(momentum=0.9), AdaComp(), 0)):
        with pytest.raises(ValueError, match=f"state of adacomp with momentum={momentum}: give it the same"):
            one.load_state_dict(other.state_dict())


def test_a_state_of_another_length_is_refused() -> None:
    state = AdaComp(momentum=0.9).state_dict() | {"steps": {"fc.bias": 1}, "velocities": {"fc.bias": torch.ones(4)}}
    compressor = by_name("adacomp", momentum=0.9)
    compressor.load_state_dict(state)
    with pytest.raises(InvalidTensorError, match=r"gradient of 'fc\.bias' has 10 elements, its velocity 4: load the"):
        next(over_switch([compressor], gradients_of, 1))


def test_a_velocity_that_does_not_move_keeps_no_bucket_in_memory() -> None:
    """Experts that are used in different steps have such velocities."""
    compressor, (place,) = AdaComp(momentum=0.9), groups(1)
    keys = [str(number) for number in range(4)]
    for used in keys:
        gradients = {key: torch.ones(8, 125) if key == used else torch.zeros(8, 125) for key in keys}
        exchange_all([compressor], [gradients], [place])
    velocities = [compressor.state_of(key).velocity for key in keys]
    held = {
        velocity.untyped_storage().data_ptr(): velocity.untyped_storage().nbytes()
        for velocity in velocities
        if velocity is not None
    }
    assert sum(held.values()) <= 4 * 4000 + 4000 * len(keys)
