"""How a DDPState ends: by an error, or with the interpreter."""

import contextlib
import os
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import nn

from p4reduce.errors import InvalidTensorError
from p4reduce.pytorch.ddp import DDPState
from p4reduce.testing.local_group import LocalGroup
from rigs.buckets import Bucket
from rigs.fork_server import ForkServer
from rigs.limits import LIMIT_S
from rigs.python_path import PYTHONPATH

pytestmark = pytest.mark.usefixtures("process_group")


def bucket(*, last: bool = True) -> Any:
    return Bucket(0, nn.Parameter(torch.ones(3)), torch.ones(3), last=last)


def test_closing_a_state_leaves_the_communicator_open() -> None:
    with LocalGroup(1) as group:
        comm, membership = group.comms[0], Mock(failure=lambda: None)
        comm.failure.membership = membership
        with DDPState(comm):
            pass
        with contextlib.suppress(ValueError), DDPState(comm):
            raise ValueError  # no bucket is under way, so the other ranks wait for none
        comm.barrier()
        membership.leave.assert_not_called()


@pytest.mark.fault(
    "an exception (or Ctrl-C) between the buckets of a step: the `with` block ends without waiting for a bucket"
)
@pytest.mark.parametrize("kind", [ValueError, InvalidTensorError, KeyboardInterrupt])
def test_an_exception_while_a_bucket_is_under_way_leaves_the_job_at_once(kind: type[BaseException]) -> None:
    lost = threading.Event()
    group = LocalGroup(1, timeout_s=LIMIT_S, lose=lambda rank, frame: lost.is_set())
    comm, membership = group.comms[0], Mock(failure=lambda: None)
    comm.failure.membership = membership
    with contextlib.suppress(kind), DDPState(comm) as state:
        lost.set()
        state.reduce(bucket(last=False))
        raise kind
    assert isinstance(state.error, kind), "not the timeout of the bucket"
    membership.leave.assert_called_once()


def test_the_end_of_the_interpreter_leaves_the_job(torch_server: ForkServer, tmp_path: Path) -> None:
    script = str(Path(__file__).with_name("ends_without_close.py"))
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    ends = {"finished": 0, "in-function": 0, "joined-only": 0, "forgotten": 0, "raised": 1}
    with contextlib.ExitStack() as stack:
        for how in ends:
            started = torch_server.start(tmp_path / how, script, how, environment=environment, folder=tmp_path)
            stack.callback(started.close)
            ends[how] -= started.wait(LIMIT_S)
    for how, wrong in ends.items():
        text = (tmp_path / how).read_text()
        assert not wrong, text
        assert [line for line in text.splitlines() if line in ("working", "left")] == ["working", "left"], text
        assert ("ValueError: of the user" in text) == (how == "raised")
