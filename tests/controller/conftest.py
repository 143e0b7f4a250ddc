"""A controller with its switch in memory, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from p4reduce_contracts.jobs.client import JobClient
from p4reduce_controller.config import Config
from rigs.certificates import Bench
from rigs.fake_switch_client import Running, make_config, serving
from rigs.limits import LIMIT_S
from rigs.registry import MemoryStore


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return make_config(tmp_path)


@pytest.fixture(autouse=True)
def close_stores() -> Iterator[None]:
    yield
    while MemoryStore.opened:
        MemoryStore.opened.pop().close()


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("certs"))


@pytest.fixture
def running(config: Config) -> Iterator[Running]:
    with serving(config) as controller:
        yield controller


@pytest.fixture
def client(running: Running) -> Iterator[JobClient]:
    with JobClient(running.address, timeout_s=LIMIT_S) as one:
        yield one
