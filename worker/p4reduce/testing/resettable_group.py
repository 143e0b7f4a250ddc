"""N communicators in one process whose job can be reset, as by a switch that restarts: they join again."""

from __future__ import annotations

import queue
import secrets
import threading
from dataclasses import replace
from functools import partial
from typing import Any, Final

from p4reduce.epoch import EpochMembership
from p4reduce.errors import CollectiveError, JobResetError, JoinError
from p4reduce.membership.rejoin import Rejoin
from p4reduce.testing.local_group import EPOCH, JOB, LocalGroup, MemoryTransport
from p4reduce.testing.reference_switch import ReferenceSwitch
from p4reduce_contracts.jobs.lease import LeasedSwitch
from p4reduce_contracts.wire import DEFAULT, SECRET_BITS, Geometry

RESTARTED: Final = "the switch restarted"


class _Membership:
    """A membership that is good for one epoch."""

    def __init__(self, group: ResettableGroup, epoch: int) -> None:
        self._group, self._epoch = group, epoch

    def failure(self) -> CollectiveError | None:
        return None if self._group.epoch == self._epoch else JobResetError(self._group.reason)

    def leave(self, *, finished: bool = False) -> None:
        pass


class ResettableGroup(LocalGroup):
    """A LocalGroup of ranks that join again: `reset` ends the epoch, with all that the switch's registers held."""

    def __init__(
        self, world_size: int, *, geometry: Geometry = DEFAULT, slots: int = 64, rejoin_s: float = 20.0, **options: Any
    ) -> None:
        """`rejoin_s`: seconds for all joining on behalf of one collective."""
        super().__init__(world_size, geometry=geometry, slots=slots, **options)
        self._geometry, self._slots = geometry, slots
        self.epoch = EPOCH
        self.reason = RESTARTED
        self._drawn: list[int] = []
        self._granted = EPOCH
        self.gate = threading.Barrier(world_size, self._grant)
        self._restart(EPOCH)
        for comm in self.comms:
            comm.enter_epoch(self._membership_of(comm.rank, EPOCH))
            comm.recovery = Rejoin(partial(self.join_epoch, comm.rank), self.gate.abort, rejoin_s)

    def reset(self, reason: str = RESTARTED) -> None:
        """End the epoch: none of its frames is answered any more, and every rank gets JobResetError with `reason`."""
        self.reason = reason
        self._restart(self.epoch + 1)
        self.epoch += 1  # last: a membership granted meanwhile is void, and no new epoch has the old secrets

    def join_epoch(self, rank: int, timeout_s: float) -> EpochMembership:
        """Return a rank's membership of the present epoch, once all ranks have joined. Raises JoinError.

        A rank that joins again although the epoch is good ends it, as with the controller.
        """
        with self._lock:
            if self._granted == self.epoch:
                self.reset(f"rank {rank} joined again")
        try:
            self.gate.wait(timeout_s)
        except threading.BrokenBarrierError:
            raise JoinError(f"rank {rank} could not join in {timeout_s:g} s: other ranks did not") from None
        return self._membership_of(rank, self._granted)

    def _grant(self) -> None:
        self._granted = self.epoch

    def _restart(self, epoch: int) -> None:
        self._drawn = [secrets.randbits(SECRET_BITS) for _ in range(self.world_size)]
        switch = ReferenceSwitch(self._geometry, self._slots)
        switch.add_job(JOB, epoch, self.world_size, 0, self._slots, self._drawn)
        self.switch = switch

    def _membership_of(self, rank: int, epoch: int) -> EpochMembership:
        self.inboxes[rank] = queue.SimpleQueue()
        lease = replace(self.comms[rank].lease, epoch=epoch, switches=(LeasedSwitch(secret=self._drawn[rank]),))
        return EpochMembership(lease, MemoryTransport(self, rank), _Membership(self, epoch))
