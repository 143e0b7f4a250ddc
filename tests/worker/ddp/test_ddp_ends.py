"""How a DDPState ends: by an error, or with the interpreter."""

import contextlib
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from p4reduce.errors import CollectiveTimeoutError, InvalidTensorError
from p4reduce.pytorch.ddp import DDPState, ddp_hook
from p4reduce.testing.local_group import LocalGroup
from rigs.buckets import Bucket
from rigs.fork_server import ForkServer
from rigs.limits import LIMIT_S

pytestmark = pytest.mark.usefixtures("process_group")


class Membership:
    def __init__(self) -> None:
        self.left = 0

    def failure(self) -> None:
        return None

    def leave(self, *, finished: bool = False) -> None:
        self.left += 1


def bucket(*, last: bool = True) -> Any:
    return Bucket(0, nn.Parameter(torch.ones(3)), torch.ones(3), last=last)


@pytest.mark.parametrize("bad", ["nan", "float64"])
def test_gradients_that_cannot_be_summed_end_the_state_but_not_the_communicator(bad: str) -> None:
    module = nn.Linear(3, 2)
    model = DistributedDataParallel(module.double() if bad == "float64" else module)
    with LocalGroup(1) as group:
        comm, membership = group.comms[0], Membership()
        comm.failure.membership = membership
        state = DDPState(comm, module=model)
        model.register_comm_hook(state, ddp_hook)
        x = torch.full((1, 3), float("nan") if bad == "nan" else 1.0, dtype=module.weight.dtype)
        with pytest.raises(InvalidTensorError) as caught:
            model(x).sum().backward()
        (note,) = caught.value.__notes__
        assert "this DDPState is finished, its communicator is not" in note
        with pytest.raises(InvalidTensorError) as again:
            state.reduce(bucket())
        assert again.value is caught.value
        state.close()
        assert membership.left == 0
        with DDPState(comm) as fresh:
            assert fresh.reduce(bucket()).wait().tolist() == [1, 1, 1]
        assert membership.left == 0
        comm.barrier()


def test_closing_a_state_leaves_the_communicator_open() -> None:
    with LocalGroup(1) as group:
        comm, membership = group.comms[0], Membership()
        comm.failure.membership = membership
        with DDPState(comm):
            pass
        with contextlib.suppress(ValueError), DDPState(comm):
            raise ValueError  # no bucket is under way, so the other ranks wait for none
        comm.barrier()
        assert membership.left == 0


@pytest.mark.fault(
    "an exception (or Ctrl-C) between the buckets of a step: the `with` block ends without waiting for a bucket"
)
@pytest.mark.parametrize("kind", [ValueError, InvalidTensorError, KeyboardInterrupt])
def test_an_exception_while_a_bucket_is_under_way_leaves_the_job_at_once(kind: type[BaseException]) -> None:
    lost = threading.Event()
    group = LocalGroup(1, timeout_s=LIMIT_S, lose=lambda rank, frame: lost.is_set())
    comm, membership = group.comms[0], Membership()
    comm.failure.membership = membership
    with contextlib.suppress(kind), DDPState(comm) as state:
        lost.set()
        state.reduce(bucket(last=False))
        raise kind
    assert isinstance(state.error, kind), "not the timeout of the bucket"
    assert membership.left == 1


def test_a_failed_collective_has_a_note_of_what_to_do() -> None:
    lost = threading.Event()
    group = LocalGroup(1, lose=lambda rank, frame: lost.is_set())
    comm, membership = group.comms[0], Membership()
    comm.failure.membership = membership
    with DDPState(comm) as state:
        lost.set()
        comm.timeout_s = 0.1
        with pytest.raises(CollectiveTimeoutError) as caught:
            state.reduce(bucket())
        assert ["join again" in note for note in caught.value.__notes__] == [True]
        assert membership.left == 1


def test_the_end_of_the_interpreter_leaves_the_job(torch_server: ForkServer, tmp_path: Path) -> None:
    script = str(Path(__file__).with_name("ends_without_close.py"))
    ends = {"finished": 0, "in-function": 0, "joined-only": 0, "forgotten": 0, "raised": 1}
    with contextlib.ExitStack() as stack:
        for how in ends:
            started = torch_server.start(tmp_path / how, script, how, environment=os.environ, folder=tmp_path)
            stack.callback(started.close)
            ends[how] -= started.wait(LIMIT_S)
    for how, wrong in ends.items():
        text = (tmp_path / how).read_text()
        assert not wrong, text
        assert [line for line in text.splitlines() if line in ("working", "left")] == ["working", "left"], text
        assert ("ValueError: of the user" in text) == (how == "raised")
