"""Stateful externs: counters, registers and meters; and parser value sets, whose values the control plane writes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from p4reduce_switch.program.ir.program import KeyTest
from p4reduce_switch.program.layout import kind_of
from p4reduce_switch.program.memory import WORD, ValueSetWord, Words, address, words_of

GREEN, YELLOW, RED = 0, 1, 2


def microseconds() -> int:
    """Return the time of the monotonic clock in microseconds."""
    return time.monotonic_ns() // 1000


class _Array:
    """Cells with indices from 0 to `size` - 1."""

    kind: ClassVar[str]

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size

    def _check(self, index: int) -> None:
        if not 0 <= index < self.size:
            raise IndexError(f"{self.kind} {self.name} has indices 0..{self.size - 1}, not {index}")


class Counter(_Array):
    """An indirect counter array: packets and bytes of each index, next to each other in `memory`."""

    kind = "counter"

    def __init__(self, name: str, size: int) -> None:
        super().__init__(name, size)
        self.memories: list[Words] = []
        self.memory = self.add_thread()

    def add_thread(self) -> Words:
        """Return memory for what one thread counts; all together are the counters."""
        self.memories.append(np.zeros((max(1, self.size), 2), np.int64))
        return self.memories[-1]

    def read(self, index: int) -> tuple[int, int]:
        """Return (packets, bytes) at `index`; IndexError if it is out of range."""
        self._check(index)
        packets, bytes_ = sum(memory[index] for memory in self.memories)
        return int(packets), int(bytes_)

    def write(self, index: int, packets: int, bytes_: int) -> None:
        """Set the counter at `index`."""
        self._check(index)
        for memory in self.memories:
            memory[index] = 0
        self.memory[index] = packets, bytes_


class Register(_Array):
    """A register array; cells are unsigned numbers of `bitwidth` bits, in `memory` as `layout.kind_of` says.

    `memory` has a row of words for each cell.
    """

    kind = "register"

    def __init__(self, name: str, size: int, bitwidth: int, memory: Words) -> None:
        super().__init__(name, size)
        self.bitwidth = bitwidth
        kind = kind_of(bitwidth, False)
        self._bytes = kind.bytes_
        self._order: Literal["big", "little"] = "big" if kind.wide else "little"
        self.memory = memory

    def read(self, index: int) -> int:
        """Return the cell at `index`; IndexError if it is out of range."""
        self._check(index)
        return int.from_bytes(self._cell(index), self._order)

    def write(self, index: int, value: int) -> None:
        """Set a cell; ValueError if `value` does not fit."""
        self._check(index)
        if not 0 <= value < 1 << self.bitwidth:
            raise ValueError(f"register {self.name} holds {self.bitwidth}-bit cells, {value} does not fit")
        self._cell(index)[:] = value.to_bytes(self._bytes, self._order)

    def _cell(self, index: int) -> memoryview:
        cell: memoryview = self.memory[index].data
        return cell.cast("B")[: self._bytes]


@dataclass(frozen=True)
class MeterConfig:
    """Rates per second and bursts, both in packets or in bytes, as P4Runtime's MeterConfig."""

    cir: int
    cburst: int
    pir: int
    pburst: int


@dataclass
class Bucket:
    """The state of one two-rate three-color marker (RFC 2698, color-blind)."""

    config: MeterConfig | None = None
    committed: int = 0
    peak: int = 0
    started_us: int = 0
    committed_given: int = field(default=0, repr=False)
    peak_given: int = field(default=0, repr=False)

    def configure(self, config: MeterConfig | None, now_us: int) -> None:
        """Start with full buckets; None marks everything green."""
        self.config = config
        self.started_us = now_us
        self.committed_given = self.peak_given = 0
        if config is not None:
            self.committed, self.peak = config.cburst, config.pburst

    def execute(self, amount: int, now_us: int) -> int:
        """Return the color of a packet that takes `amount` tokens at `now_us`."""
        config = self.config
        if config is None:
            return GREEN
        elapsed = now_us - self.started_us
        given = elapsed * config.pir // 1_000_000
        self.peak = min(config.pburst, self.peak + given - self.peak_given)
        self.peak_given = given
        given = elapsed * config.cir // 1_000_000
        self.committed = min(config.cburst, self.committed + given - self.committed_given)
        self.committed_given = given
        if self.peak < amount:
            return RED
        self.peak -= amount
        if self.committed < amount:
            return YELLOW
        self.committed -= amount
        return GREEN


class Meter(_Array):
    """An indirect meter array; `unit` is 'packets' or 'bytes'. `clock` may be replaced by tests."""

    kind = "meter"

    def __init__(self, name: str, size: int, unit: str) -> None:
        super().__init__(name, size)
        self.unit = unit
        self.clock = microseconds
        self._buckets: dict[int, Bucket] = {}

    def configure(self, index: int, config: MeterConfig | None) -> None:
        """Set the rates of one index; None removes them (everything is green)."""
        self._check(index)
        self._buckets.setdefault(index, Bucket()).configure(config, self.clock())

    def read(self, index: int) -> MeterConfig | None:
        """Return the rates of one index; None if it has none."""
        self._check(index)
        bucket = self._buckets.get(index)
        return bucket.config if bucket else None

    def execute(self, index: int, length: int) -> int:
        """Return the color of a packet of `length` bytes."""
        bucket = self._buckets.get(index)
        if bucket is None:
            return GREEN
        return bucket.execute(1 if self.unit == "packets" else length, self.clock())


class ValueSet:
    """A value set whose members have keys of these widths in bits, without members at first.

    `words` are its words in the program's state (`memory.ValueSetWord`).
    """

    def __init__(self, name: str, widths: Sequence[int], words: Words) -> None:
        self.name = name
        self.widths = tuple(widths)
        self.members: tuple[tuple[KeyTest, ...], ...] = ()
        self._words = words
        self._memory: Words = np.zeros(1, np.int64)

    def set_members(self, members: Sequence[tuple[KeyTest, ...]]) -> None:
        """Set all members at once; each has a test for each key."""
        self.members = tuple(members)
        limbs = [
            part >> 64 * word & WORD
            for member in members
            for test, width in zip(member, self.widths, strict=True)
            for part in test
            for word in range(words_of(width))
        ]
        self._memory = np.array([*limbs, 0], np.uint64).view(np.int64)
        self._words[ValueSetWord.MEMBERS] = address(self._memory)
        self._words[ValueSetWord.COUNT] = len(members)
