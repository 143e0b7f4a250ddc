"""N communicators in one process whose job can be reset, as by a switch that restarts: they join again."""

from __future__ import annotations

import queue
import secrets
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from p4reduce.epoch import EpochMembership
from p4reduce.errors import CollectiveError, JobResetError, JoinError
from p4reduce.membership.rejoin import Rejoin, enter_epoch
from p4reduce.testing.local_group import EPOCH, LocalGroup, MemoryTransport, leased_switches, new_switches
from p4reduce_contracts.jobs.lease import LeasedSwitch
from p4reduce_contracts.wire.geometry import DEFAULT, Geometry
from p4reduce_contracts.wire.numbers import SECRET_BITS

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
        self,
        world_size: int,
        *,
        geometry: Geometry = DEFAULT,
        slots: int = 64,
        switches_of: Callable[[int], int] = lambda epoch: 1,
        rejoin_s: float = 20.0,
        **options: Any,
    ) -> None:
        """`rejoin_s`: seconds for all joining on behalf of one collective.

        `switches_of` returns how many switches side by side an epoch has, each with `slots` slots.
        """
        super().__init__(world_size, geometry=geometry, slots=slots, **options)
        self._geometry, self._slots, self._switches_of = geometry, slots, switches_of
        self.epoch = EPOCH
        self.reason = RESTARTED
        self._drawn: list[list[int]] = []
        self._granted = EPOCH
        self.gate = threading.Barrier(world_size, self._grant)
        self._restart(EPOCH)
        for comm in self.comms:
            enter_epoch(comm, self._membership_of(comm.rank, EPOCH))
            Rejoin(partial(self.join_epoch, comm.rank), self.gate.abort, rejoin_s).attach(comm)

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
