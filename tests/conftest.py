"""Fixtures that tests of several folders share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigs.fork_server import TORCH, ForkServer, fork_server
from rigs.system import System, racks_of, running_system

# All ranks of a test are on one host: without this they would not use the switch. worker/hosts/ has the other case.
os.environ["P4REDUCE_HOSTS"] = "off"
# Threads of torch wait for each other in a loop: with two, a table took 5.5 s of processor time in place of 0.5.
os.environ["OMP_NUM_THREADS"] = "1"


@pytest.fixture
def system(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[System]:
    """A running switch, or tree of switches (rigs/system.py), and its controller."""
    with running_system(tmp_path, racks=racks_of(request)) as running:
        yield running


@pytest.fixture(scope="session")
def torch_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Forks processes that have imported torch."""
    with fork_server(tmp_path_factory.mktemp("server"), TORCH) as server:
        yield server


@pytest.fixture(scope="module")
def wide_system(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[System]:
    """`system` with the default pipeline, which all tests of a module use."""
    with running_system(tmp_path_factory.mktemp("system"), "default", racks_of(request)) as running:
        yield running
