"""Ranks in one process whose job is reset, also at chosen answers of the switch, and a run for them to go through."""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p4reduce import Communicator
from p4reduce.codecs import Floats
from p4reduce.epoch import EpochMembership
from p4reduce.errors import CollectiveError, InvalidTensorError, JobResetError, JoinError, PeerRefusedError
from p4reduce.membership.rejoin import Rejoin, enter_epoch
from p4reduce.testing.local_group import EPOCH, LocalGroup, MemoryTransport, leased_switches, new_switches
from p4reduce_contracts.jobs.lease import LeasedSwitch
from p4reduce_contracts.wire.geometry import DEFAULT, SMALL, Geometry
from p4reduce_contracts.wire.numbers import SECRET_BITS
from rigs.limits import LIMIT_S


class _Membership:
    """A membership that is good for one epoch."""

    def __init__(self, group: ResettableGroup, epoch: int) -> None:
        self._group, self._epoch = group, epoch

    def failure(self) -> CollectiveError | None:
        return None if self._group.epoch == self._epoch else JobResetError(self._group.reason)

    def leave(self, *, finished: bool = False) -> None:
        pass


class ResettableGroup(LocalGroup):
    """A LocalGroup of ranks that join again: `reset` ends the epoch, with all that the switch's registers held.

    `switches_of` returns how many switches side by side an epoch has, each with `slots` slots.
    """

    def __init__(
        self,
        world_size: int,
        *,
        geometry: Geometry = DEFAULT,
        slots: int = 64,
        switches_of: Callable[[int], int] = lambda epoch: 1,
        rejoin_s: float = LIMIT_S,
        **options: Any,
    ) -> None:
        super().__init__(world_size, geometry=geometry, slots=slots, **options)
        self._geometry, self._slots, self._switches_of = geometry, slots, switches_of
        self.epoch = self._granted = EPOCH
        self.reason = ""
        self._drawn: list[list[int]] = []
        self.gate = threading.Barrier(world_size, lambda: setattr(self, "_granted", self.epoch))
        self._restart(EPOCH)
        for comm in self.comms:
            enter_epoch(comm, self._membership_of(comm.rank, EPOCH))
            Rejoin(partial(self.join_epoch, comm.rank), self.gate.abort, rejoin_s).attach(comm)

    def reset(self, reason: str = "the switch restarted") -> None:
        """End the epoch: none of its frames is answered any more, and every rank gets JobResetError with `reason`."""
        self.reason = reason
        self._restart(self.epoch + 1)
        self.epoch += 1  # last: a membership granted meanwhile is void, and no new epoch has the old secrets

    def join_epoch(self, rank: int, timeout_s: float) -> EpochMembership:
        """Return a rank's membership of the present epoch, once all ranks have joined; for a good one the next's."""
        with self._lock:
            if self._granted == self.epoch:
                self.reset(f"rank {rank} joined again")
        try:
            self.gate.wait(timeout_s)
        except threading.BrokenBarrierError:
            raise JoinError(f"rank {rank} could not join in {timeout_s:g} s: other ranks did not") from None
        return self._membership_of(rank, self._granted)

    def _restart(self, epoch: int) -> None:
        switches = range(self._switches_of(epoch))
        self._drawn = [[secrets.randbits(SECRET_BITS) for _ in range(self.world_size)] for _ in switches]
        self.switch = new_switches(self._geometry, self._slots, epoch, self._drawn)

    def _membership_of(self, rank: int, epoch: int) -> EpochMembership:
        self.inboxes[rank] = queue.SimpleQueue()
        switches = self.switches_of_rank(rank)
        lease = replace(self.comms[rank].lease, epoch=epoch, slot_count=self._slots * len(switches), switches=switches)
        return EpochMembership(lease, MemoryTransport(self, rank), _Membership(self, epoch))

    def switches_of_rank(self, rank: int) -> tuple[LeasedSwitch, ...]:
        """Return the switches of a rank's lease of the present epoch."""
        return leased_switches(self._drawn, rank)


def slow_clock() -> float:
    """Return a time by which a busy machine repeats no frame: answers are counted."""
    return time.monotonic() / 1000


class CutGroup(ResettableGroup):
    """Resets its job instead of handing out certain answers, counted from the first; what is under way is lost."""

    def __init__(
        self, world_size: int, cuts: set[int], *, geometry: Geometry = SMALL, slots: int = 4, **options: Any
    ) -> None:
        super().__init__(world_size, geometry=geometry, slots=slots, clock=slow_clock, **options)
        self.cuts = cuts
        self.answers = 0

    def deliver(self, rank: int, payload: bytes) -> None:
        with self._lock:
            for to, answer in self.switch.process(rank, payload):
                if self.is_cut():
                    self.reset()
                    return
                self.inboxes[to].put(answer)

    def is_cut(self) -> bool:
        """Count an answer; return whether the job is reset in its place."""
        cut = self.answers in self.cuts
        self.cuts.discard(self.answers)
        self.answers += 1
        return cut


def numbers(rank: int, step: int, size: int = 70) -> NDArray[np.float32]:
    return np.random.default_rng(100 * rank + step).normal(0, 10.0**step, size).astype(np.float32)


def run(comm: Communicator) -> list[Any]:
    """One collective of every kind; each sum is written over what it was made of, as the hook for gradients does."""
    found: list[Any] = []
    for step in range(2):
        mine = numbers(comm.rank, step)
        mine[...] = comm.all_reduce_segments([Floats(mine, mean=True)])[0]
        found.append(mine.copy())
    whole = np.arange(60, dtype=np.int32) * (comm.rank + 1)
    found.append(comm.all_reduce(whole))
    found.append(comm.broadcast(numbers(comm.rank, 3, 9), 1))
    comm.barrier()
    try:
        comm.all_reduce(np.array([np.nan if comm.rank == 1 else 1.0], np.float32))
    except (InvalidTensorError, PeerRefusedError) as error:
        found.append(type(error).__name__)
    found += [np.frombuffer(data, np.uint8) for data in comm.all_gather_bytes(bytes(range(10 * comm.rank)))]
    return found


def run_and_close(comm: Communicator) -> list[Any]:
    """`run`, and meet the others once more, as a rank that ends has to: one of them may lack the last result."""
    found = run(comm)
    comm.close()
    return found


def same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(
        a == b if isinstance(a, str) else a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True)
    )
