"""Launches whose ranks are threads of this process, and a group of such ranks in their host's memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch.distributed import HashStore

from p4reduce.communicator import Communicator
from p4reduce.errors import JoinError
from p4reduce.launch import launch
from p4reduce.testing.local_group import LocalGroup
from rigs.limits import LIMIT_S


def started(
    ranks: int,
    timeout_s: float = LIMIT_S,
    store: HashStore | None = None,
    former: Sequence[launch.Launch | None] = (None,) * 32,
) -> list[launch.Launch | str]:
    """Return what each rank, a thread named after it, has started, or its error; `former`: its launch before."""
    store = store or HashStore()

    def rank_main(rank: int) -> launch.Launch | str:
        threading.current_thread().name = f"rank {rank}"
        try:
            return launch.start(store, rank, ranks, timeout_s, former=former[rank])
        except JoinError as error:
            return str(error)

    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(rank_main, range(ranks)))


class OneHost(LocalGroup):
    """A LocalGroup without a switch, whose ranks share the memory of their host."""

    def __init__(self, world_size: int) -> None:
        self.world_size, store = world_size, HashStore()
        self._pool = ThreadPoolExecutor(world_size, "rank")

        def share(rank: int) -> Communicator:
            found = launch.share_memory(launch.Told(store, LIMIT_S), rank, world_size)
            assert isinstance(found, Communicator), found
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("P4REDUCE_HOSTS", "on")
            self.comms = list(self._pool.map(share, range(world_size)))
