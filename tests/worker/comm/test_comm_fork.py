"""A forked child of a rank: it can neither send as its parent nor end its parent's membership."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest
import torch

from p4reduce.collective_queue import CollectiveFuture
from p4reduce.errors import ForkedProcessError
from p4reduce.pytorch.ddp import DDPState
from p4reduce.testing.local_group import LocalGroup
from rigs.buckets import Bucket


@pytest.mark.fault(
    "a forked child calls its parent's communicator: ForkedProcessError in the child; the parent continues"
)
def test_a_forked_child_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child is recognised by the number of its process."""
    ones, parent = torch.ones(3), os.getpid()
    with LocalGroup(1) as group:
        comm = group.comms[0]
        begun = CollectiveFuture(lambda: None)
        state = DDPState(comm)
        calls: list[Callable[[], object]] = [
            lambda: comm.all_reduce(np.ones(3, np.float32)),
            lambda: comm.refuse(ValueError("mine")),
            comm.check,
            comm.close,
            begun.result,
            lambda: state.reduce(Bucket(0, ones, ones, last=True)),  # type: ignore[arg-type]
            state.close,
        ]
        with monkeypatch.context() as child:
            child.setattr(os, "getpid", lambda: parent + 1)
            for call in calls:
                with pytest.raises(ForkedProcessError, match=f"of process {parent}, .*as a rank of its own"):
                    call()
        assert comm.all_reduce(np.ones(3, np.float32)).tolist() == [1, 1, 1]
        state.close()
