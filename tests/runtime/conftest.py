"""Child processes that use kernels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rigs.doubling import Use, users
from rigs.fork_server import NUMBA, ForkServer, fork_server


@pytest.fixture(scope="session")
def numba_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Forks processes that have imported numba."""
    with fork_server(tmp_path_factory.mktemp("server"), NUMBA) as server:
        yield server


@pytest.fixture
def use(numba_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Use:
    """Runs programs in processes of their own."""
    return users(numba_server, tmp_path_factory.mktemp("programs"))
