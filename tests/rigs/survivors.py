"""Ranks as threads over a running system, which sum and check without end, and come back when they are reset."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import Executor, Future

import numpy as np

import p4reduce
from p4reduce_contracts.jobs.client import JobClient
from rigs.limits import LIMIT_S, wait_until
from rigs.system import System

RANKS = 2
STUCK_S = 0.3


def tensor(rank: int, step: int) -> np.ndarray:
    """Return a rank's tensor: any int32 at all, so that a sum of the wrong step or rank cannot be right by chance."""
    return np.random.default_rng([rank, step]).integers(-(2**31), 2**31, 700).astype(np.int32)


class Steps:
    """The number of steps of each rank; all continue to a common last step."""

    def __init__(self, ranks: int = RANKS) -> None:
        self.done = [0] * ranks
        self.comms: list[p4reduce.Communicator] = []
        self.last = sys.maxsize
        self._lock = threading.Lock()

    def begin(self, rank: int) -> bool:
        with self._lock:
            if self.done[rank] >= self.last:
                return False
            self.done[rank] += 1
            return True

    def stop(self) -> None:
        with self._lock:
            self.last = max(self.done) + 5

    def wait_stuck(self) -> None:
        """Wait until a rank's frame has had no answer for a while."""
        wait_until(
            lambda: any((wait := comm.waiting()) and wait.waited_s > STUCK_S for comm in self.comms), "none waits"
        )

    def wait_more(self, count: int) -> None:
        target = max(self.done) + count
        wait_until(lambda: min(self.done) >= target, f"no rank comes to step {target}")


def train(address: str, rank: int, steps: Steps, switch: str = "") -> set[int]:
    """Sum a tensor a step; AssertionError at the first wrong sum. Returns the epochs that it saw.

    `switch` is the one that it sends to, where there are several.
    """
    epochs = set()
    ranks = len(steps.done)
    with p4reduce.join(
        "train", rank=rank, world_size=ranks, controller=address, timeout_s=LIMIT_S, rejoin=True, switch=switch or None
    ) as comm:
        steps.comms.append(comm)
        while steps.begin(rank):
            step = steps.done[rank]
            got = comm.all_reduce(tensor(rank, step), timeout_s=LIMIT_S)
            want = np.sum([tensor(each, step) for each in range(ranks)], axis=0, dtype=np.int32)
            assert np.array_equal(got, want), f"rank {rank}, step {step}"
            epochs.add(comm.lease.epoch)
    return epochs


def ranks_of(system: System) -> int:
    """Return the ranks of a job: RANKS at each switch that has ranks."""
    return RANKS * max(1, len(system.leaves))


def begin(pool: Executor, system: System, steps: Steps) -> list[Future[set[int]]]:
    """Create the job and start its ranks; each ends with the epochs that it saw."""
    address, ranks = system.controller.address("jobs on"), ranks_of(system)
    with JobClient(address) as client:
        client.create_job("train", ranks, slots=8)
    return [pool.submit(train, address, rank, steps, system.switch_of(rank, ranks)) for rank in range(ranks)]
