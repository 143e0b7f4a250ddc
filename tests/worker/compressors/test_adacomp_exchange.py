"""AdaComp over collectives, in each form: means, scales, what is kept, and what it costs."""

from __future__ import annotations

import time

import pytest
import torch

from p4reduce.communicator import Communicator
from p4reduce.compressors import AdaComp
from p4reduce.compressors.all_reduce import all_reduce_compressed
from p4reduce.testing.local_group import LocalGroup
from rigs.ranks import gradients_of

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
