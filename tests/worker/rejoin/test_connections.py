"""The connections that joins and epochs leave: none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import p4reduce
from p4reduce_contracts.jobs.client import JobClient
from rigs.limits import LIMIT_S, wait_until
from rigs.local_system import local_system


def held() -> int:
    """Return the number of descriptors, which both ends of each connection are in this process."""
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.fault("a rank joins and leaves, or joins again after resets, many times: no connection stays")
def test_neither_joins_nor_epochs_leave_connections(tmp_path: Path) -> None:
    with local_system(tmp_path) as system, JobClient(system.address) as client:
        client.create_job("train", 1)

        def join() -> p4reduce.Communicator:
            options = {"controller": system.address, "timeout_s": LIMIT_S, "rejoin": True}
            return p4reduce.join("train", rank=0, world_size=1, **options)

        join().close()
        before = held()
        for _ in range(60):
            join().close()
        wait_until(lambda: held() <= before)
        comm = join()
        for _ in range(30):
            system.reset_jobs()
            wait_until(lambda: comm.failure.lost() is not None)
            comm.barrier()
        comm.close()
        wait_until(lambda: held() <= before)
