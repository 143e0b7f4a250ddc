"""AdaComp over collectives, in each form: means, scales, what is kept, and what it costs."""

from __future__ import annotations

import math
import time

import pytest
import torch

from p4reduce.communicator import Communicator
from p4reduce.compressors import AdaComp
from p4reduce.compressors.all_reduce import all_reduce_compressed
from p4reduce.testing.local_group import LocalGroup
from rigs.ranks import SHAPES, gradients_of, over_switch, residue_of

FORMS = ("sum", "gather", "shared", "auto")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("world_size", [1, 4, 9])
def test_dense_parameters_are_the_mean_and_all_ranks_have_the_same_bits(form: str, world_size: int) -> None:
    compressors = [AdaComp(form=form) for _ in range(world_size)]
    for step, found in enumerate(over_switch(compressors, gradients_of, 4)):
        for name, shape in SHAPES.items():
            for outcome, _ in found:
                assert outcome.means[name].shape == shape
                assert torch.equal(outcome.means[name], found[0][0].means[name])
            if len(shape) < 2:
                mean = torch.stack([gradients_of(rank, step)[name] for rank in range(world_size)]).mean(0)
                torch.testing.assert_close(found[0][0].means[name], mean, rtol=1e-6, atol=1e-7)
            else:
                assert found[0][0].means[name].any()


@pytest.mark.parametrize("form", FORMS)
def test_how_many_collectives_a_step_takes(form: str) -> None:
    """One; in the form sum one more before the very first, in the form shared a second each step."""
    steps = 3
    adacomps = [AdaComp(form=form) for _ in range(2)]

    def rank_main(comm: Communicator) -> int:
        for step in range(steps):
            all_reduce_compressed(comm, adacomps[comm.rank], gradients_of(comm.rank, step))
        return comm.stats.collectives

    with LocalGroup(2) as group:
        assert set(group.run(rank_main)) == {steps * (2 if form == "shared" else 1) + (form == "sum")}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", [{}, {"levels": 5, "value_bits": 8}, {"value_bits": 32}])
def test_means_and_residues_add_up_to_the_gradients_over_many_steps(form: str, options: dict[str, int]) -> None:
    """Sum over steps and ranks of what was given = N * (sum of the means) + the ranks' residues."""
    world_size, steps = 3, 40
    compressors = [AdaComp(form=form, **options) for _ in range(world_size)]
    found = list(over_switch(compressors, gradients_of, steps))
    for name in ("fc.weight", "conv.weight"):
        received = sum(step[0][0].means[name].double() for step in found) * world_size
        given = sum(gradients_of(r, s)[name].double() for r in range(world_size) for s in range(steps))
        left = sum(residue_of(one, name).double() for one in compressors).view(SHAPES[name])
        assert received.abs().max() > 1 and left.abs().max() > 0.1
        torch.testing.assert_close(received + left, given, rtol=0, atol=1e-3)


@pytest.mark.parametrize("form", FORMS)
def test_adacomp_sends_a_fraction_of_the_dense_bytes(form: str) -> None:
    adacomps = [AdaComp(form=form) for _ in range(4)]

    def rank_main(comm: Communicator) -> tuple[int, int]:
        gradient = torch.randn(40, 500, generator=torch.Generator().manual_seed(comm.rank))
        adacomp = adacomps[comm.rank]
        all_reduce_compressed(comm, adacomp, {"w": gradient})
        before = comm.stats.bytes_up
        _, report = all_reduce_compressed(comm, adacomp, {"w": gradient})
        sparse = comm.stats.bytes_up - before
        assert report.bytes_up == sparse
        comm.all_reduce(gradient)
        return sparse, comm.stats.bytes_up - before - sparse

    # A slow clock: on a busy machine frames would be sent again, and count.
    with LocalGroup(4, clock=lambda: time.monotonic() / 1000) as group:
        for sparse, dense in group.run(rank_main):
            assert dense > 5 * sparse  # 8 lanes a word in the form sum, fewer bytes in the others


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("names", [["conv.bias"], ["fc.weight"]])
def test_only_dense_or_only_compressed_parameters(names: list[str], form: str) -> None:
    def some(rank: int, step: int) -> dict[str, torch.Tensor]:
        return {name: gradients_of(rank, step)[name] for name in names}

    for found in over_switch([AdaComp(form=form) for _ in range(2)], some, 2):
        for outcome, _ in found:
            assert [(name, tuple(mean.shape)) for name, mean in outcome.means.items()] == [(names[0], SHAPES[names[0]])]


@pytest.mark.parametrize("form", FORMS)
def test_zero_gradients_and_empty_parameters(form: str) -> None:
    def zeros(rank: int, step: int) -> dict[str, torch.Tensor]:
        return {"w": torch.zeros(5, 60), "empty": torch.zeros(0, 4), "b": torch.zeros(5)}

    adacomps = [AdaComp(form=form) for _ in range(2)]
    for found in over_switch(adacomps, zeros, 3):
        for outcome, _ in found:
            assert all(not mean.any() for mean in outcome.means.values())
            assert math.prod(outcome.means["empty"].shape) == 0
    assert adacomps[0].residue_norm() == 0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value_bits", [16, 32])
def test_means_of_large_gradients_are_finite(form: str, value_bits: int) -> None:
    large = {"w": torch.full((2, 60), 2e38), "b": torch.full((5,), -2e38)}
    adacomps = [AdaComp(form=form, value_bits=value_bits) for _ in range(2)]
    for found in over_switch(adacomps, lambda rank, step: large, 1):
        for outcome, _ in found:
            torch.testing.assert_close(outcome.means["w"].max(), torch.tensor(2e38), rtol=1e-4, atol=0)
            torch.testing.assert_close(outcome.means["b"], torch.full((5,), -2e38))
    assert math.isfinite(adacomps[0].residue_norm())


@pytest.mark.parametrize("form", FORMS)
def test_warm_up_is_dense_for_exactly_that_many_steps(form: str) -> None:
    adacomps = [AdaComp(form=form, warmup_steps=3) for _ in range(2)]
    for step, found in enumerate(over_switch(adacomps, gradients_of, 5)):
        mean = (gradients_of(0, step)["fc.weight"] + gradients_of(1, step)["fc.weight"]) / 2
        outcome, report = found[1]
        dense = torch.allclose(outcome.means["fc.weight"], mean, rtol=1e-5, atol=1e-6)
        assert dense == (step < 3)
        assert set(report.forms) == (set() if step < 3 else {"fc.weight", "conv.weight"})
        assert (adacomps[0].residue("fc.weight") is None) == (step < 3)
