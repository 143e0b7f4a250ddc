"""N communicators in one process over the reference switch, for tests."""

from __future__ import annotations

import queue
import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from p4reduce.communicator import Communicator
from p4reduce.testing.reference_switch import ReferenceSwitch, SideBySide, SwitchSide
from p4reduce_contracts.jobs.lease import Lease, LeasedSwitch, Level
from p4reduce_contracts.wire.geometry import DEFAULT, Geometry
from p4reduce_contracts.wire.numbers import SECRET_BITS

JOB: Final = 1
EPOCH: Final = 7
"""The epoch of the leases and of the reference switch's job; another `switch` has such a job, with the secrets 0."""

T = TypeVar("T")


class MemoryTransport:
    """Frames go through the switch in the caller's thread and into the ranks' queues."""

    def __init__(self, group: LocalGroup, rank: int) -> None:
        self._group, self._rank = group, rank
        self._inbox: queue.SimpleQueue[bytes] = group.inboxes[rank]

    def send(self, frames: Iterable[bytes]) -> None:
        for frame in frames:
            self._group.deliver(self._rank, frame)

    def receive(self, timeout_s: float) -> list[bytes]:
        frames: list[bytes] = []
        try:
            frames.append(self._inbox.get(timeout=timeout_s) if timeout_s > 0 else self._inbox.get_nowait())
            while len(frames) < 128:
                frames.append(self._inbox.get_nowait())
        except queue.Empty:
            pass
        return frames

    def close(self) -> None:
        pass


class LocalGroup:
    """`with LocalGroup(4) as group: sums = group.run(lambda comm: comm.all_reduce(mine[comm.rank]))`

    `group.comms` are the communicators, by rank; `run` calls a function once per rank, each in its
    own thread, and returns the results by rank (or raises the first rank's error).
    `lose(rank, payload) -> bool` may drop frames on their way to the switch.
    """

    def __init__(
        self,
        world_size: int,
        *,
        geometry: Geometry = DEFAULT,
        slots: int = 64,
        timeout_s: float = 60.0,
        switch: SwitchSide | None = None,
        switches: int = 1,
        lose: Callable[[int, bytes], bool] | None = None,
        leases: Sequence[Lease] | None = None,
        **options: Any,
    ) -> None:
        """`leases`: those of a job that `switch` has, by rank; None: those of a job of this group's own.

        Without `switch`: `switches` side by side, of which each has `slots` slots.
        """
        self.world_size = world_size
        drawn = [[0] * world_size]
        if switch is None:
            drawn = [[secrets.randbits(SECRET_BITS) for _ in range(world_size)] for _ in range(switches)]
            switch = new_switches(geometry, slots, EPOCH, drawn)
        self.switch = switch
        self._lose = lose
        self._lock = threading.Lock()
        self.inboxes: list[queue.SimpleQueue[bytes]] = [queue.SimpleQueue() for _ in range(world_size)]
        total, shape = slots * len(drawn), (geometry.columns, geometry.block_words)
        leases = leases or [
            Lease(*(JOB, "test", EPOCH, rank, world_size, total, *shape), switches=leased_switches(drawn, rank))
            for rank in range(world_size)
        ]
        self.comms = [
            Communicator(lease, MemoryTransport(self, rank), timeout_s=timeout_s, **options)
            for rank, lease in enumerate(leases)
        ]
        self._pool = ThreadPoolExecutor(world_size, "rank")

    def deliver(self, rank: int, payload: bytes) -> None:
        if self._lose is not None and self._lose(rank, payload):
            return
        with self._lock:
            for to, answer in self.switch.process(rank, payload):
                self.inboxes[to].put(answer)

    def run(self, function: Callable[[Communicator], T]) -> list[T]:
        return [future.result(timeout=600) for future in [self._pool.submit(function, c) for c in self.comms]]

    def __enter__(self) -> LocalGroup:
        return self

    def __exit__(self, *exc: object) -> None:
        if exc[0] is None:
            self.run(Communicator.close)
        else:
            for comm in self.comms:
                comm.close(wait=False)
        self._pool.shutdown()


def new_switches(geometry: Geometry, slots: int, epoch: int, secrets: Sequence[Sequence[int]]) -> SwitchSide:
    """Return switches side by side, each with `slots` slots of the job; `secrets`: by switch, of its ranks."""
    sides = [ReferenceSwitch(geometry, slots) for _ in secrets]
    for side, of_ranks in zip(sides, secrets, strict=True):
        side.add_job(JOB, epoch, len(of_ranks), 0, slots, of_ranks)
    return SideBySide(*sides) if len(sides) > 1 else sides[0]


def leased_switches(secrets: Sequence[Sequence[int]], rank: int) -> tuple[LeasedSwitch, ...]:
    """Return the switches of a rank's lease."""
    return tuple(
        LeasedSwitch(
            secret=of_ranks[rank], levels=(Level(f"switch{number}", tuple((each,) for each in range(len(of_ranks)))),)
        )
        for number, of_ranks in enumerate(secrets)
    )
