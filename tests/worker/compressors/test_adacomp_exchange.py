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
@pytest.mark.parametrize("value_bits", [16, 32])
def test_means_of_large_gradients_are_finite(form: str, value_bits: int) -> None:
    large = {"w": torch.full((2, 60), 2e38), "b": torch.full((5,), -2e38)}
    adacomps = [AdaComp(form=form, value_bits=value_bits) for _ in range(2)]
    for found in over_switch(adacomps, lambda rank, step: large, 1):
        for outcome, _ in found:
            torch.testing.assert_close(outcome.means["w"].max(), torch.tensor(2e38), rtol=1e-4, atol=0)
            torch.testing.assert_close(outcome.means["b"], torch.full((5,), -2e38))
    assert math.isfinite(adacomps[0].residue_norm())


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
