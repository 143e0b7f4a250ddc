"""Gradients that cannot be summed, given to `all_reduce_compressed` itself: all ranks learn of it in the same step."""

from __future__ import annotations

import pytest
import torch

from p4reduce import Communicator
from p4reduce.compressors.all_reduce import all_reduce_compressed
from p4reduce.errors import InvalidTensorError, NotFiniteError, PeerRefusedError, Reason
from p4reduce.testing.local_group import LocalGroup
from rigs.ranks import equal, gradients_of, make

BAD = {
    "a NaN": (float("nan"), NotFiniteError, Reason.NOT_FINITE),
    "float64": (None, InvalidTensorError, Reason.INVALID_TENSOR),
}


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("compressor", ["none", "adacomp", "scalecom"])
def test_one_rank_s_gradients_are_refused_on_all_and_the_next_step_is_right(compressor: str, what: str) -> None:
    value, error_type, reason = BAD[what]
    shapes = {"conv": (8, 3, 5, 5)}
    compressors = [make(compressor) for _ in range(2)]

    def step(comm: Communicator, number: int, bad: bool) -> torch.Tensor:
        gradients = gradients_of(comm.rank, number, shapes)
        if bad and comm.rank == 1:
            gradients["conv"] = gradients["conv"].double() if value is None else gradients["conv"].fill_(value)
        return all_reduce_compressed(comm, compressors[comm.rank], gradients)[0].means["conv"]

    def refused(comm: Communicator) -> Exception:
        with pytest.raises((InvalidTensorError, PeerRefusedError)) as caught:
            step(comm, 1, bad=True)
        return caught.value

    with LocalGroup(2) as group:
        group.run(lambda comm: step(comm, 0, bad=False))
        before = [each.state_dict() for each in compressors]
        told = group.run(refused)
        assert isinstance(told[0], PeerRefusedError) and told[0].reasons == {1: reason}
        assert type(told[1]) is error_type
        assert all(equal(each.state_dict(), state) for each, state in zip(compressors, before, strict=True))
        one, other = group.run(lambda comm: step(comm, 2, bad=False))
        assert torch.equal(one, other)
