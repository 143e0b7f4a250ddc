"""Packet replication: multicast groups and clone sessions."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass

import numpy as np

from p4reduce_switch.program.memory import Word, Words, address
from p4reduce_switch.program.packet import MAX_PORT

MAX_INSTANCE = 0xFFFF
MULTICAST_GROUPS = 1 << 16
"""The number of multicast groups: mcast_grp has 16 bits in v1model. Groups above have no replicas."""
FEWEST_REPLICAS = 64


@dataclass(frozen=True)
class Replica:
    """One copy: its egress port, and its instance (egress_rid)."""

    port: int
    instance: int

    def __post_init__(self) -> None:
        if not 0 <= self.port <= MAX_PORT:
            raise ValueError(f"port {self.port} is outside 0..{MAX_PORT}")
        if not 0 <= self.instance <= MAX_INSTANCE:
            raise ValueError(f"instance {self.instance} is outside 0..{MAX_INSTANCE}")


@dataclass(frozen=True)
class CloneSession:
    """A clone session: its replicas; at most `truncate_len` bytes are sent, 0 for all."""

    replicas: tuple[Replica, ...]
    truncate_len: int = 0


class Groups(MutableMapping[int, Sequence[Replica]]):
    """Multicast groups; those with numbers below the limit are in memory that machine code reads."""

    def __init__(self, state: Words, limit: int) -> None:
        self._state = state
        self._groups: dict[int, tuple[Replica, ...]] = {}
        self._directory = np.zeros((limit, 2), np.uint32)
        self._replicas = np.zeros((FEWEST_REPLICAS, 2), np.uint32)
        self._used = 0
        state[Word.GROUPS] = address(self._directory)
        self._show()

    def __getitem__(self, id: int) -> Sequence[Replica]:
        return self._groups[id]

    def __setitem__(self, id: int, replicas: Sequence[Replica]) -> None:
        self._groups[id] = tuple(replicas)
        self._put(id)
        self._show()

    def __delitem__(self, id: int) -> None:
        del self._groups[id]
        if 0 <= id < len(self._directory):
            self._directory[id] = 0
        self._show()

    def __iter__(self) -> Iterator[int]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def largest(self) -> int:
        """The number of replicas of the largest group."""
        return max((len(replicas) for replicas in self._groups.values()), default=0)

    def _put(self, id: int) -> None:
        """Append a group's replicas; without space for them, compact or enlarge the memory first."""
        if not 0 <= id < len(self._directory):
            return
        count = len(self._groups[id])
        if self._used + count > len(self._replicas):
            needed = sum(len(replicas) for replicas in self._groups.values())
            self._replicas = np.zeros((max(FEWEST_REPLICAS, 2 * needed), 2), np.uint32)
            self._used = 0
            for other in self._groups:
                self._append(other)
        else:
            self._append(id)

    def _append(self, id: int) -> None:
        if not 0 <= id < len(self._directory):
            return
        replicas = self._groups[id]
        for offset, replica in enumerate(replicas):
            self._replicas[self._used + offset] = replica.port, replica.instance
        self._directory[id] = self._used, len(replicas)
        self._used += len(replicas)

    def _show(self) -> None:
        self._state[Word.REPLICAS] = address(self._replicas)
        self._state[Word.COPIES] = max(1, self.largest)


class Replication:
    """The packet replication engine. Copies are made in the order of the lists.

    `state` are the words of the program's state; without them the groups have words of their own.
    """

    def __init__(self, state: Words | None = None) -> None:
        words = np.zeros(Word.FIRST_FREE, np.int64) if state is None else state
        self.multicast_groups: MutableMapping[int, Sequence[Replica]] = Groups(words, MULTICAST_GROUPS)
        """The multicast groups, by group id."""
        self.clone_sessions: dict[int, CloneSession] = {}
