"""A process group whose ranks are threads: what `pytorch/fallback.py` needs of gloo."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p4reduce.membership.rejoin import Rejoin
from p4reduce.pytorch.fallback import Fallback, GlooGroup
from p4reduce.testing.resettable_group import ResettableGroup
from rigs.limits import LIMIT_S


class MemoryGroups:
    """`of(rank)` is that rank's side of the group."""

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self._told: list[Any] = [None] * world_size
        self._gate = threading.Barrier(world_size)

    def of(self, rank: int) -> MemoryGroup:
        return MemoryGroup(self, rank)

    def share(self, rank: int, what: Any, patience_s: float) -> list[Any]:
        """What every rank gives here."""
        self._told[rank] = what
        try:
            self._gate.wait(patience_s)
            told = list(self._told)
            self._gate.wait(patience_s)
        except threading.BrokenBarrierError:
            raise RuntimeError(f"a rank did not come in {patience_s:g} s") from None
        return told


class MemoryGroup(GlooGroup):
    def __init__(self, groups: MemoryGroups, rank: int) -> None:
        self._groups, self._rank = groups, rank
        self.patience_s = LIMIT_S

    def gather(self, record: bytes) -> list[bytes]:
        return self._groups.share(self._rank, record, self.patience_s)

    def fetch(self, rank: int, data: bytes | None, size: int) -> bytes:
        fetched: bytes = self._groups.share(self._rank, data, self.patience_s)[rank]
        assert len(fetched) == size
        return fetched

    def largest(self, values: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return np.max(self._groups.share(self._rank, values, self.patience_s), axis=0)

    def total(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.sum(self._groups.share(self._rank, values, self.patience_s), axis=0)


def fallen_back(group: ResettableGroup) -> list[Fallback]:
    """Give the ranks a process group to fall back on."""
    groups = MemoryGroups(group.world_size)
    for comm in group.comms:
        assert isinstance(comm.recovery, Rejoin)
        comm.recovery = Fallback(comm.recovery.joiner, None, groups.of(comm.rank))
    return [comm.recovery for comm in group.comms]
