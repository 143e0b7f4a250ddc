"""Launches whose ranks are threads of this process, and a group of such ranks in their host's memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from p4reduce.communicator import Communicator
from p4reduce.errors import JoinError
from p4reduce.launch import launch
from p4reduce.testing.local_group import LocalGroup
from rigs.limits import LIMIT_S


class Store:
    """The part of torch's stores that is used."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def set(self, key: str, value: str) -> None:
        self._kept[key] = value.encode()

    def get(self, key: str) -> bytes:
        return self._kept[key]

    def check(self, keys: Sequence[str]) -> bool:
        return all(key in self._kept for key in keys)

    def add(self, key: str, number: int) -> int:
        with self._lock:
            self._kept[key] = str(int(self._kept.get(key, b"0")) + number).encode()
            return int(self._kept[key])

    def delete_key(self, key: str) -> bool:
        return self._kept.pop(key, None) is not None

    def texts(self) -> str:
        return b"".join(self._kept.values()).decode()


def started(ranks: int, timeout_s: float = LIMIT_S, store: Store | None = None) -> list[launch.Launch | str]:
    """Return what each rank, a thread named after it, has started, or its error."""
    store = store or Store()

    def rank_main(rank: int) -> launch.Launch | str:
        threading.current_thread().name = f"rank {rank}"
        try:
            return launch.start(store, rank, ranks, timeout_s)
        except JoinError as error:
            return str(error)

    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(rank_main, range(ranks)))


class OneHost(LocalGroup):
    """A LocalGroup without a switch, whose ranks share the memory of their host."""

    def __init__(self, world_size: int) -> None:
        self.world_size, store = world_size, Store()
        self._pool = ThreadPoolExecutor(world_size, "rank")

        def share(rank: int) -> Communicator:
            found = launch.share_memory(launch.Told(store, LIMIT_S), rank, world_size)
            assert isinstance(found, Communicator), found
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("P4REDUCE_HOSTS", "on")
            self.comms = list(self._pool.map(share, range(world_size)))
