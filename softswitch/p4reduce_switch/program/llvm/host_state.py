"""The state of a program that Python and machine code share, and the callbacks from machine code."""

from __future__ import annotations

import ctypes
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p4reduce_switch.program.ir import externs as ir
from p4reduce_switch.program.ir.program import Program
from p4reduce_switch.program.layout import Layout
from p4reduce_switch.program.llvm.checksums import bytes_of
from p4reduce_switch.program.llvm.host_abi import Failure, HostAbi, Point, error_of, unpack_values
from p4reduce_switch.program.memory import (
    LINE,
    LOCKS,
    WORD,
    Call,
    StateOffsets,
    TableWord,
    ValueSetWord,
    Word,
    Words,
    address,
    aligned_words,
    register_kind,
)
from p4reduce_switch.program.state.profiles import ActionProfile
from p4reduce_switch.program.state.replication import Replication
from p4reduce_switch.program.state.stateful import Counter, Meter, Register, ValueSet, microseconds
from p4reduce_switch.program.state.tables import Table
from p4reduce_switch.program.steps import Step
from p4reduce_switch.program.traffic import DigestHandler

CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 4)


class HostState:
    """The state of one program: words, tables and externs."""

    def __init__(self, program: Program, layout: Layout, offsets: StateOffsets, host_abi: HostAbi) -> None:
        self.on_digest: DigestHandler | None = None
        self.random = random.Random()
        self.started_us = microseconds()
        """The origin of the program's time, on the monotonic clock."""
        self._on_log: Callable[[str], None] | None = None
        self.raised: BaseException | None = None
        """The exception that a callback raised."""
        self.on_step: Callable[[Step, Any, tuple[int, ...]], None] = _ignore
        """Takes what traced code reports."""
        self._points: Sequence[Point] = ()
        self._program = program
        self._host_abi = host_abi
        self.state: Words = np.zeros(offsets.size, np.int64)
        self._callback, self._calls = CALLBACK(self._called), threading.Lock()
        self._values: Words = np.zeros(max(1, host_abi.words), np.int64)
        self._records = aligned_words(2, -(-max(1, layout.size // 8) // 8) * 8)
        self._pieces = max((bytes_of(found, layout.kinds) for found in program.calculations), default=0)
        self.state[Word.CALLBACK] = ctypes.cast(self._callback, ctypes.c_void_p).value or 0
        self.state[Word.VALUES] = address(self._values)
        self.state[Word.RECORD], self.state[Word.SAVED] = (address(record) for record in self._records)
        self._locks = aligned_words(LOCKS, LINE // 8)
        self.state[Word.LOCKS] = address(self._locks)
        self.replication = Replication(self.state)
        registers = self._register_arrays(offsets)
        counters = {found: Counter(found.name, found.size) for found in program.counters}
        for register, word in offsets.registers.items():
            self.state[word] = address(registers[register].memory)
        for counter, word in offsets.counters.items():
            self.state[word] = address(counters[counter].memory)
        self.registers = {found.name: array for found, array in registers.items()}
        self.counters = {found.name: array for found, array in counters.items()}
        self._meters = [Meter(found.name, found.size, found.unit) for found in program.meters]
        self.meters = {meter.name: meter for meter in self._meters}
        self.value_sets = {
            found.name: ValueSet(found.name, found.widths, self.state[word : word + len(ValueSetWord)])
            for found, word in offsets.value_sets.items()
        }
        profiles = {
            found: ActionProfile(found.name, found.max_size, found.selector is not None)
            for found in program.action_profiles
        }
        self.action_profiles = {found.name: profile for found, profile in profiles.items()}
        self._tables = [
            Table(
                found,
                self.state[word : word + len(TableWord)],
                None if found.profile is None else profiles[found.profile],
                self.started_us,
            )
            for found, word in offsets.tables.items()
        ]
        self.tables = {table.name: table for table in self._tables}

    @staticmethod
    def _register_arrays(offsets: StateOffsets) -> dict[ir.Register, Register]:
        rows: dict[int, Words] = {}
        found = {}
        for declared, (offset, row) in offsets.cells.items():
            if declared.size not in rows:
                rows[declared.size] = aligned_words(max(1, declared.size), row // 8)
            cells = rows[declared.size][:, offset // 8 :][:, : register_kind(declared).aligned_bytes // 8]
            found[declared] = Register(declared.name, declared.size, declared.bitwidth, cells)
        return found

    def reserve(self, length: int) -> None:
        """Allocate scratch memory for hashes over a frame of this length."""
        self._scratch = np.zeros(self._pieces + length, np.uint8)
        self.state[Word.SCRATCH] = address(self._scratch)

    def new_thread(self, offsets: StateOffsets) -> ThreadState:
        """Return the state of one more thread."""
        record, saved = aligned_words(*self._records.shape)
        own: dict[int, NDArray[Any]] = {Word.RECORD: record, Word.SAVED: saved}
        own |= {Word.VALUES: np.zeros_like(self._values), Word.SCRATCH: np.zeros_like(self._scratch)}
        own |= {word: self.counters[counter.name].add_thread() for counter, word in offsets.counters.items()}
        return ThreadState(self.state, own)

    def trace_with(self, host_abi: HostAbi) -> None:
        """Take reports of traced code that was emitted with this."""
        self._points = host_abi.points or ()
        self._values = np.zeros(max(1, host_abi.words), np.int64)
        self.state[Word.VALUES] = address(self._values)

    def collect(self, thread: ThreadState | None = None) -> None:
        """Pass the digest of the last frame of a thread to `on_digest`; raise ExecutionError if the frame failed."""
        state, stored = (self.state, self._values) if thread is None else (thread.words, thread.values)
        digest, failure = int(state[Word.DIGEST]), int(state[Word.FAILURE])
        state[Word.DIGEST] = state[Word.FAILURE] = 0
        raised, self.raised = self.raised, None
        if raised is not None:
            raise raised
        if digest and self.on_digest is not None:
            declared = self._program.digests[digest]
            values = unpack_values(stored.tolist(), self._host_abi.digest_formats[digest])
            masks = [(1 << slot.bits) - 1 for slot in declared.fields]
            row = tuple(value & mask for value, mask in zip(values, masks, strict=True))
            self.on_digest(declared.name, [row])
        if failure:
            value = int(state[Word.FAILURE_LOW]) & WORD | int(state[Word.FAILURE_HIGH]) << 64
            raise error_of(Failure(failure), value, int(state[Word.FAILURE_LIMIT]))

    @property
    def on_log(self) -> Callable[[str], None] | None:
        """Receives the program's log messages; None discards them."""
        return self._on_log

    @on_log.setter
    def on_log(self, handler: Callable[[str], None] | None) -> None:
        self._on_log = handler
        self.state[Word.LOGGING] = handler is not None

    # ---- callbacks from machine code

    def _called(self, kind: int, number: int, a: int, b: int) -> int:
        try:
            with self._calls:
                return self._answer(Call(kind), number, a, b)
        except BaseException as error:  # an exception must not propagate through machine code
            self.raised = error
            self.state[Word.FAILURE] = Failure.CALL
            return 0

    def _answer(self, kind: Call, number: int, a: int, b: int) -> int:
        match kind:
            case Call.METER:
                return self._meters[number].execute(a, b)
            case Call.DIRECT_METER:
                table = self._tables[number]
                return table.meter_color(table.by_row[a], b)
            case Call.RANDOM:
                return self.random.randint(a, b)
            case Call.TRACE:
                point, first = self._points[number], self._host_abi.log_words
                words = self._values[first : first + sum(item.words for item in point.formats)].tolist()
                self.on_step(point.what, point.subject, unpack_values(words, point.formats))
                return 0
        text = self._host_abi.logs[number].text
        values = self._values[self._host_abi.log_words :].tolist()
        for value in unpack_values(values, self._host_abi.log_formats[number]):
            text = text.replace("{}", str(value), 1)
        if self._on_log is not None:
            self._on_log(text)
        return 0


class ThreadState:
    """A program's words for one of several threads that run its frames: those of its `own` memory differ."""

    def __init__(self, shared: Words, own: Mapping[int, NDArray[Any]]) -> None:
        self._shared, self._own = shared, own
        self.words = shared.copy()
        self.values = own[Word.VALUES]

    def refresh(self) -> None:
        """Take over the changes that Python has made; the thread runs no frame."""
        for part in (slice(Word.DIGEST), slice(Word.LOGGING, None)):  # not the reports
            self.words[part] = self._shared[part]
        self.words[list(self._own)] = [address(memory) for memory in self._own.values()]


def _ignore(_step: Step, _subject: Any, _values: tuple[int, ...]) -> None:
    pass
