"""Registers, counters and multicast groups in memory that compiled code reads and writes: the array is the truth."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence

import numpy as np
from numpy.typing import NDArray

from p4reduce_switch.program.ir import externs
from p4reduce_switch.program.llvm.memory import Word, register_kind
from p4reduce_switch.program.state.replication import CloneSession, Replica
from p4reduce_switch.program.state.stateful import Counter, Register

Words = NDArray[np.int64]
FEWEST_REPLICAS = 64


def address(array: NDArray[np.generic]) -> int:
    """Where an array's elements are."""
    return int(array.ctypes.data)


class CompiledRegister(Register):
    """A register whose cells are bytes."""

    def __init__(self, register: externs.Register) -> None:
        self.name = register.name
        self.size = register.size
        self.bitwidth = register.bitwidth
        kind = register_kind(register)
        self._bytes, self._room = kind.bytes_, kind.room
        self._order: str = "big" if kind.wide else "little"
        self.memory = np.zeros(max(1, register.size * kind.room // 8), np.int64)
        self._view = self.memory.data.cast("B")

    def read(self, index: int) -> int:
        """The cell at `index`; IndexError when there is no such index."""
        self._check(index)
        start = index * self._room
        return int.from_bytes(self._view[start : start + self._bytes], self._order)  # type: ignore[arg-type]

    def write(self, index: int, value: int) -> None:
        """Set a cell; ValueError when `value` does not fit."""
        self._check(index)
        self._check_value(value)
        start = index * self._room
        self._view[start : start + self._bytes] = value.to_bytes(self._bytes, self._order)  # type: ignore[arg-type]


class CompiledCounter(Counter):
    """A counter whose packets and bytes are words, side by side."""

    def __init__(self, counter: externs.Counter) -> None:
        self.name = counter.name
        self.size = counter.size
        self.memory = np.zeros((max(1, counter.size), 2), np.int64)

    def read(self, index: int) -> tuple[int, int]:
        """(packets, bytes) at `index`; IndexError when there is no such index."""
        self._check(index)
        packets, bytes_ = self.memory[index]
        return int(packets), int(bytes_)

    def write(self, index: int, packets: int, bytes_: int) -> None:
        """Set the counter at `index`."""
        self._check(index)
        self.memory[index] = packets, bytes_


class Groups(MutableMapping[int, Sequence[Replica]]):
    """Multicast groups, and for those with numbers below the limit the same in memory."""

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
        """Replicas of the largest group."""
        return max((len(replicas) for replicas in self._groups.values()), default=0)

    def _put(self, id: int) -> None:
        """Append a group's replicas; when there is no room left, begin anew with those that are in use."""
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


class CompiledReplication:
    """The packet replication engine."""

    def __init__(self, state: Words, limit: int) -> None:
        self._groups = Groups(state, limit)
        self.clone_sessions: dict[int, CloneSession] = {}

    @property
    def multicast_groups(self) -> MutableMapping[int, Sequence[Replica]]:
        """By group id."""
        return self._groups

    @multicast_groups.setter
    def multicast_groups(self, groups: MutableMapping[int, Sequence[Replica]]) -> None:
        self._groups.clear()
        self._groups.update(groups)
