"""Momentum correction: what is compressed, kept and forgotten, against its definition in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from p4reduce.communicator import Communicator
from p4reduce.compressors import AdaComp, Compressor, Policy, by_name
from p4reduce.compressors.all_reduce import all_reduce_compressed
from p4reduce.errors import CollectiveMismatchError, InvalidTensorError, PeerRefusedError
from p4reduce.testing.in_process import exchange_all, groups
from p4reduce.testing.local_group import LocalGroup
from rigs.ranks import SHAPES, choose, equal, gradients_of, over_switch, residue_of

MOMENTUM = 0.9
RANKS, STEPS = 3, 6


def velocity_of(compressor: Compressor, key: str) -> torch.Tensor:
    velocity = compressor.state_of(key).velocity
    assert velocity is not None
    return velocity


def moved(velocity: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """Return the next velocity, each operation rounded; torch's lerp rounds once where the processor can."""
    return velocity + (1 - MOMENTUM) * (gradient - velocity)


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


def test_dense_parameters_give_an_optimizer_without_momentum_the_steps_of_sgd_with_it() -> None:
    compressors: list[Compressor] = [AdaComp(momentum=MOMENTUM) for _ in range(RANKS)]
    ends = {}
    mean_gradients = [
        torch.stack([gradients_of(r, step)["fc.bias"] for r in range(RANKS)]).mean(0) for step in range(9)
    ]
    mean_velocities = [found[0][0].means["fc.bias"] for found in over_switch(compressors, gradients_of, 9)]
    for momentum, lr, means in ((MOMENTUM, 0.1, mean_gradients), (0.0, 0.1 / (1 - MOMENTUM), mean_velocities)):
        parameter = ends[momentum] = torch.zeros(10, requires_grad=True)
        optimizer = torch.optim.SGD([parameter], lr=lr, momentum=momentum)
        for mean in means:
            parameter.grad = mean
            optimizer.step()
    torch.testing.assert_close(ends[0.0], ends[MOMENTUM])


@pytest.mark.parametrize("form", ["sum", "gather"])
def test_a_rank_without_a_gradient_sends_nothing_and_keeps_its_velocity(form: str) -> None:
    """A compressed and a dense parameter are tried; the next step continues from the velocity."""
    compressors: list[Compressor] = [AdaComp(form=form, momentum=MOMENTUM) for _ in range(2)]

    def source(rank: int, step: int) -> dict[str, torch.Tensor]:
        found = gradients_of(rank, step)
        return found if step != 3 else {key: torch.zeros_like(one) for key, one in found.items()}

    for _ in over_switch(compressors, source, 3):
        pass
    before = [one.state_dict() for one in compressors]
    for found in over_switch(compressors, source, range(3, 4)):
        assert not any(mean.any() for mean in found[0][0].means.values())
    for one, state in zip(compressors, before, strict=True):
        assert equal(one.state_dict()["velocities"], state["velocities"])
        assert equal(one.state_dict()["residues"], state["residues"])
        assert set(state["velocities"]) == set(SHAPES)
    for found in over_switch(compressors, source, range(4, 5)):
        mean = found[0][0].means["fc.bias"]
        velocities = [
            moved(state["velocities"]["fc.bias"], gradients_of(r, 4)["fc.bias"]) for r, state in enumerate(before)
        ]
        torch.testing.assert_close(mean, torch.stack(velocities).mean(0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_velocities_of_gradients_of_16_bits_are_float32(dtype: torch.dtype) -> None:
    compressors: list[Compressor] = [AdaComp(form="gather", momentum=MOMENTUM) for _ in range(2)]

    def source(rank: int, step: int) -> dict[str, torch.Tensor]:
        return {key: tensor.to(dtype) for key, tensor in gradients_of(rank, step).items()}

    for found in over_switch(compressors, source, 4):
        assert all(mean.dtype == dtype for mean in found[0][0].means.values())
    wanted = torch.zeros(10)
    for step in range(4):
        wanted = moved(wanted, source(1, step)["fc.bias"].float())
    assert torch.equal(velocity_of(compressors[1], "fc.bias"), wanted)


def test_a_step_that_is_refused_leaves_the_velocities_of_all_ranks() -> None:
    """A NaN, and a velocity that overflows, on one rank."""
    large = torch.full((6,), 3e38)
    compressors: list[Compressor] = [AdaComp(momentum=0.01) for _ in range(2)]

    def refused(comm: Communicator, bad: torch.Tensor) -> str:
        with pytest.raises((InvalidTensorError, PeerRefusedError)) as caught:
            step(comm, bad)
        return str(caught.value)

    def step(comm: Communicator, given: torch.Tensor) -> None:
        all_reduce_compressed(comm, compressors[comm.rank], {"w": given if comm.rank == 0 else torch.ones(6)})

    with LocalGroup(2) as group:
        group.run(lambda comm: step(comm, large / 4))
        before = [one.state_dict() for one in compressors]
        said = group.run(lambda comm: refused(comm, torch.full((6,), torch.nan)))
        assert "gradient of w holds a NaN" in said[0]
        said = group.run(lambda comm: refused(comm, -large))
        assert "the velocity of 'w' overflows float32" in said[0] and "0" in said[1]
        assert all(equal(one.state_dict(), state) for one, state in zip(compressors, before, strict=True))
        group.run(lambda comm: step(comm, large / 4))


def test_ranks_with_different_momentum_get_an_error() -> None:
    compressors: list[Compressor] = [AdaComp(momentum=0.9), AdaComp(momentum=0.8)]
    with pytest.raises(CollectiveMismatchError):
        next(over_switch(compressors, gradients_of, 1))


def test_a_state_with_momentum_is_refused_where_there_is_none() -> None:
    for one, other, momentum in ((AdaComp(), AdaComp(momentum=0.9), 0.9), (AdaComp(momentum=0.9), AdaComp(), 0)):
        with pytest.raises(ValueError, match=f"state of adacomp with momentum={momentum}: give it the same"):
            one.load_state_dict(other.state_dict())
    old = AdaComp().state_dict()
    del old["momentum"], old["velocities"]
    AdaComp().load_state_dict(old)  # of version 0.2


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
