"""Reads of what another thread, or a compiled kernel without the interpreter's lock, changes meanwhile."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import p4reduce
from p4reduce.membership import join
from p4reduce_contracts.jobs.client import JobClient
from rigs.limits import LIMIT_S
from rigs.local_system import local_system

_SUMS = 50


@pytest.mark.fault(
    "heartbeats and metrics look at a collective while its kernels change it: they read without an error"
)
def test_others_look_at_a_running_pump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """numpy's flatnonzero looks twice. Here it takes longer in between, as a busy machine makes it."""
    flatnonzero = np.flatnonzero

    def looking_twice(values: Any) -> Any:
        count = np.count_nonzero(values)
        time.sleep(1e-4)
        if count != np.count_nonzero(values):
            raise RuntimeError("number of non-zero array elements changed during function execution.")
        return flatnonzero(values)

    monkeypatch.setattr(np, "flatnonzero", looking_twice)
    ended = threading.Event()

    def look_with(look: Callable[[], object]) -> int:
        looks = 0
        while not ended.is_set():
            looks += look() is not None
            time.sleep(1e-4)  # else no other thread gets its turn
        return looks

    with local_system(tmp_path) as system, JobClient(system.address) as client, ThreadPoolExecutor(4) as threads:
        client.create_job("train", 1, 1)
        comm = p4reduce.join("train", rank=0, world_size=1, controller=system.address, timeout_s=LIMIT_S)
        readers = [threads.submit(look_with, look) for look in (comm.waiting, comm.metrics, comm.stats.copy)]
        for _ in range(_SUMS):
            comm.all_reduce(np.ones(1024, np.float32), timeout_s=LIMIT_S)
        ended.set()
        assert all(reader.result(LIMIT_S) for reader in readers)
        comm.close(wait=False)


@pytest.mark.fault("SIGTERM while another thread of the rank joins a job: it leaves those that it has joined")
def test_heartbeats_are_ended_while_others_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    class Rank:
        def leave_at_once(self, timeout_s: float) -> None:
            pass

    kept: list[Any] = []
    monkeypatch.setattr(join, "_heartbeats", join._heartbeats.__class__())
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(1) as threads:
            left = threads.submit(lambda: [join._leave_at_once() for _ in range(3_000)])
            while not left.done():
                kept.append(Rank())
                join._heartbeats[id(kept[-1])] = kept[-1]
                del kept[:-100]
            left.result()
    finally:
        sys.setswitchinterval(interval_s)
