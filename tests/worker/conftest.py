"""Fixtures that the tests of the worker share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch.distributed as dist

from p4reduce.communicator import Communicator
from p4reduce.testing.local_group import LocalGroup


@pytest.fixture(scope="module")
def process_group() -> Iterator[None]:
    """A process group of gloo, of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def comm() -> Iterator[Communicator]:
    """A communicator of a job of one rank, over a switch in this process."""
    with LocalGroup(1) as group:
        yield group.comms[0]
