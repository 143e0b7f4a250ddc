"""Two ranks of the backend in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist

from p4reduce.pytorch.backend import group as backend
from p4reduce.pytorch.backend.group import ProcessGroupP4Reduce
from p4reduce.pytorch.backend.jobs import GroupJob
from p4reduce.pytorch.backend.routes import Routes
from p4reduce.testing.local_group import LocalGroup

RANKS = 2
LIMIT = timedelta(seconds=60)
Rank = Callable[[ProcessGroupP4Reduce, Any], Any]


class Job(GroupJob):
    def close(self, **_how: object) -> None:
        pass


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[Any]]]:
    """ranks(function, device, options): what function(process group, device) returned on each rank."""
    with LocalGroup(RANKS) as local, ThreadPoolExecutor(RANKS) as pool:
        jobs = [Job(comm) for comm in local.comms]
        monkeypatch.setattr(backend, "join_job", lambda store, rank, *others, **options: jobs[rank])
        monkeypatch.setattr(backend, "BROADCAST_BYTES", 1)
        monkeypatch.setattr(Routes, "run", lambda self, comm, size, over_switch, *others: over_switch())
        store = dist.HashStore()
        made: list[ProcessGroupP4Reduce] = []
        making = threading.Lock()

        def rank_main(number: int, rank: int, function: Rank, device: Any, options: Any) -> Any:
            mine = dist.PrefixStore(str(number), store)
            group = ProcessGroupP4Reduce.over(mine, rank, RANKS, timeout=LIMIT, options=options)
            with making:
                made.append(group)
            return function(group, device)

        def run(function: Rank, device: Any = None, options: Any = None) -> list[Any]:
            number = len(made)
            futures = [pool.submit(rank_main, number, rank, function, device, options) for rank in range(RANKS)]
            return [future.result(timeout=2 * LIMIT.total_seconds()) for future in futures]

        yield run
        list(pool.map(ProcessGroupP4Reduce.shutdown, made))
