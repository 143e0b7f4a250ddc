"""A rank that cannot take part in a collective: every rank gets the refusal in that collective, and all go on."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import torch

from p4reduce import Communicator
from p4reduce.codecs import Floats, Lanes
from p4reduce.errors import (
    CollectiveMismatchError,
    CollectiveTimeoutError,
    CommunicatorClosedError,
    InvalidTensorError,
    LaneOverflowError,
    NotFiniteError,
    PeerRefusedError,
    Reason,
    UnderflowError,
)
from p4reduce.testing.local_group import LocalGroup

BIG = np.ones(5000, np.float32)


def with_nan() -> np.ndarray:
    tensor = BIG.copy()
    tensor[4321] = np.nan
    return tensor


def outcome(call: Callable[[], Any]) -> Any:
    """Return the call's result, or the error that it raises."""
    try:
        return call()
    except (InvalidTensorError, PeerRefusedError, TypeError, ValueError) as error:
        return error


@pytest.mark.parametrize(
    ("bad", "error", "reason"),
    [
        (lambda comm: comm.all_reduce(with_nan()), NotFiniteError, Reason.NOT_FINITE),
        (lambda comm: comm.all_reduce([1.0]), InvalidTensorError, Reason.INVALID_TENSOR),
        (lambda comm: comm.all_reduce(np.ones(3)), InvalidTensorError, Reason.INVALID_TENSOR),
        (lambda comm: comm.all_reduce_segments([Lanes(np.array([9]), 4)]), LaneOverflowError, Reason.LANE_OVERFLOW),
        (
            lambda comm: comm.all_reduce(np.array([1e30, 1], np.float32), refuse_underflow=True),
            UnderflowError,
            Reason.UNDERFLOW,
        ),
        (lambda comm: comm.broadcast(np.ones(3), 9), InvalidTensorError, Reason.INVALID_TENSOR),
        (lambda comm: comm.all_gather("text"), InvalidTensorError, Reason.INVALID_TENSOR),
        (lambda comm: comm.all_gather_bytes("text"), TypeError, Reason.OTHER),
        (lambda comm: comm.barrier(timeout_s=float("nan")), ValueError, Reason.OTHER),
        (lambda comm: comm.barrier(timeout_s=-1), ValueError, Reason.OTHER),
    ],
)
def test_the_other_ranks_get_the_reason(
    bad: Callable[[Communicator], Any], error: type[Exception], reason: Reason
) -> None:
    with LocalGroup(3) as group:
        results = group.run(lambda comm: outcome(lambda: bad(comm) if comm.rank == 1 else comm.all_reduce(BIG)))
        assert type(results[1]) is error
        for rank in (0, 2):
            assert isinstance(results[rank], PeerRefusedError)
            assert results[rank].reasons == {1: reason}
            assert f"rank 1: {reason}" in str(results[rank])
            assert str(results[rank]).startswith("all_reduce of 5000 float32 (operation 0")
        for total in group.run(lambda comm: comm.all_reduce(BIG)):
            assert (total == 3).all()


def test_when_all_refuse_each_has_its_own_error() -> None:
    with LocalGroup(3) as group:
        results = group.run(lambda comm: outcome(lambda: comm.all_reduce(with_nan())))
        assert all(type(error) is NotFiniteError for error in results)
        for total in group.run(lambda comm: comm.all_reduce(BIG)):
            assert (total == 3).all()


def test_an_error_is_sent_once() -> None:
    """refuse() is for errors that come up before a collective; what a collective raised is not sent again."""
    error = NotFiniteError("found elsewhere")
    with LocalGroup(2) as group:

        def step(comm: Communicator) -> Any:
            if comm.rank == 0:
                assert comm.refuse(error) == comm.refuse(error) == {0: Reason.NOT_FINITE}
                raised = outcome(lambda: comm.all_reduce([1.0]))
                assert comm.refuse(raised) == {0: Reason.INVALID_TENSOR}
            else:
                for reason in (Reason.NOT_FINITE, Reason.INVALID_TENSOR):
                    with pytest.raises(PeerRefusedError) as caught:
                        comm.all_reduce(BIG)
                    assert caught.value.reasons == {0: reason}
            return comm.all_reduce(BIG)

        for total in group.run(step):
            assert (total == 2).all()


@pytest.mark.fault(
    "NaN or infinity on one rank: PeerRefusedError on the others in the same collective; all skip that step"
)
def test_ranks_that_skip_refused_steps_sum_equal_ones_over_empty_slots() -> None:
    """Refused calls and good ones open few slots or many: no keys or sums are left over in any."""
    with LocalGroup(2, slots=32) as group:

        def step(comm: Communicator) -> list[Any]:
            results = []
            for number in range(12):
                refuses = number % 3 == comm.rank
                tensor = with_nan() if refuses else np.full(5000 if number % 2 else 40, number + 1, np.float32)
                results.append(outcome(lambda tensor=tensor: comm.all_reduce(tensor)))  # type: ignore[misc]
            return results

        for rank, results in enumerate(group.run(step)):
            for number, total in enumerate(results):
                if number % 3 == 2:
                    assert (total == 2 * (number + 1)).all()
                else:
                    assert isinstance(total, InvalidTensorError if number % 3 == rank else PeerRefusedError)
        assert [comm.stats.refused for comm in group.comms] == [8, 8]


def test_a_refusal_at_another_operation_is_a_mismatch_on_every_rank() -> None:
    with LocalGroup(2) as group:
        group.comms[1].operations += 1

        def step(comm: Communicator) -> str:
            with pytest.raises(CollectiveMismatchError) as caught:
                comm.all_reduce(with_nan() if comm.rank == 0 else BIG)
            if comm.rank == 0:
                assert isinstance(caught.value.__cause__, InvalidTensorError)
            return str(caught.value)

        messages = set(group.run(step))
        assert len(messages) == 1
        assert "rank 0: a refusal for a NaN or an infinity (operation 0)" in messages.pop()


def test_a_refusal_that_no_rank_receives_names_both_errors() -> None:
    with LocalGroup(2) as group:
        with pytest.raises(CollectiveTimeoutError, match="the switch still waits for rank 1") as caught:
            group.comms[0].all_reduce(with_nan(), timeout_s=2.0)
        assert isinstance(caught.value.__cause__, InvalidTensorError)
        for comm in group.comms:
            comm.close(wait=False)


def test_the_error_of_a_closed_communicator_precedes_that_of_the_tensor(comm: Communicator) -> None:
    comm.close()
    with pytest.raises(CommunicatorClosedError):
        comm.all_reduce(with_nan())


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_the_error_for_torch_tensors_without_data_says_what_to_do(comm: Communicator) -> None:
    given = {
        "device meta, without any numbers; give it some": torch.ones(3, device="meta"),
        "sparse .*; give its to_dense": torch.eye(3).to_sparse(),
        "sparse .*; give its to_dense()": torch.eye(3).to_sparse_csr(),
    }
    for message, tensor in given.items():
        for call in (comm.all_reduce, comm.broadcast, Floats):
            with pytest.raises(InvalidTensorError, match=message):
                call(tensor)


def test_a_timeout_may_be_a_timedelta() -> None:
    lost = threading.Event()
    group = LocalGroup(2, lose=lambda rank, frame: lost.is_set())
    comm = Communicator(group.comms[0].lease, group.comms[0].over_switch.transport, timeout_s=timedelta(minutes=1))
    assert comm.timeout_s == 60
    lost.set()
    with pytest.raises(CollectiveTimeoutError, match="0.25 s"):
        comm.barrier(timeout_s=timedelta(milliseconds=250))


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf"), -float("inf"), 1e300, "soon", timedelta(0)])
def test_invalid_timeouts_are_refused(comm: Communicator, timeout_s: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(f"timeout_s is {timeout_s}; give a time to wait in seconds")):
        comm.barrier(timeout_s=timeout_s)
    with pytest.raises(ValueError, match="give a time to wait in seconds"):
        Communicator(comm.lease, comm.over_switch.transport, timeout_s=timeout_s)
    assert comm.all_reduce_segments([Floats(BIG)], timeout_s=1e6)[0].sum() == 5000
