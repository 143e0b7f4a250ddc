"""Fixtures that the tests of the worker share."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
import torch.distributed as dist

from p4reduce.communicator import Communicator
from p4reduce.membership import rejoin
from p4reduce.protocol.channel import load_pump
from p4reduce.testing.local_group import LocalGroup
from rigs.limits import LIMIT_S


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


@pytest.fixture
def peer() -> Iterator[socket.socket]:
    """A UDP socket at a free port of 127.0.0.1."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", 0))
        peer.settimeout(LIMIT_S)
        yield peer


@pytest.fixture
def pump() -> Any:
    """The compiled loop over a socket."""
    if (pump := load_pump()) is None:
        pytest.skip("needs numba and 64-bit Linux")
    return pump


@pytest.fixture
def small_and_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """All collectives with data are summed over hosts; a rank that missed the last exchange waits until others end."""
    monkeypatch.setattr("p4reduce.paths.switch.SwitchPath.least_host_bytes", 1)
    monkeypatch.setattr(rejoin, "CLOSE_PATIENCE_S", LIMIT_S)
