"""A program in the compiled executor."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p4reduce_switch.program import batch as words
from p4reduce_switch.program.executor import DigestHandler
from p4reduce_switch.program.ir.program import Program
from p4reduce_switch.program.llvm.arrays import CompiledCounter, CompiledRegister, CompiledReplication, Words, address
from p4reduce_switch.program.llvm.build import object_file
from p4reduce_switch.program.llvm.checksums import room_of
from p4reduce_switch.program.llvm.deparser import longest
from p4reduce_switch.program.llvm.errors import NotCompilable
from p4reduce_switch.program.llvm.failures import Failure, error_of
from p4reduce_switch.program.llvm.handover import Handover, taken
from p4reduce_switch.program.llvm.layout import Layout
from p4reduce_switch.program.llvm.memory import Call, StateMap, Word
from p4reduce_switch.program.llvm.tables import CompiledTable
from p4reduce_switch.program.llvm.target import Loaded
from p4reduce_switch.program.llvm.whole import GROUPS, RUN_BATCH
from p4reduce_switch.program.load import load_program
from p4reduce_switch.program.packet import MAX_PORT
from p4reduce_switch.program.state.stateful import Meter, microseconds
from p4reduce_switch.program.traffic import Frames

MAX_FRAME = 1 << 16
"""Bytes of the longest frame that memory is kept for; a longer one gets more when it comes."""
RUN = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 4)


class CompiledProgram:
    """A v1model program as machine code: an `Executor`."""

    def __init__(self, config: bytes | str | dict[str, Any]) -> None:
        self.on_digest: DigestHandler | None = None
        self.random = random.Random()
        self.description = "llvm"
        self._on_log: Callable[[str], None] | None = None
        self._raised: BaseException | None = None
        program = load_program(config)
        check(program)
        layout, map_ = Layout(program, in_memory=False), StateMap(program)
        self._handover = Handover(program, layout)
        self._code = Loaded(object_file(config, program, layout, map_, self._handover))
        self._run = RUN(self._code.address(RUN_BATCH))
        self._program = program
        self._headers = longest(program.deparser, layout)
        self._state: Words = np.zeros(map_.size, np.int64)
        self._callback = CALLBACK(self._called)
        self._values: Words = np.zeros(max(1, self._handover.words), np.int64)
        self._records: Words = np.zeros((2, max(1, layout.size // 8)), np.int64)
        self._pieces = max((room_of(found, layout.kinds) for found in program.calculations), default=0)
        self._state[Word.CALLBACK] = ctypes.cast(self._callback, ctypes.c_void_p).value or 0
        self._state[Word.VALUES] = address(self._values)
        self._state[Word.RECORD], self._state[Word.SAVED] = (address(record) for record in self._records)
        self.replication = CompiledReplication(self._state, GROUPS)
        registers = {found: CompiledRegister(found) for found in program.registers}
        counters = {found: CompiledCounter(found) for found in program.counters}
        for register, word in map_.registers.items():
            self._state[word] = address(registers[register].memory)
        for counter, word in map_.counters.items():
            self._state[word] = address(counters[counter].memory)
        self.registers = {found.name: array for found, array in registers.items()}
        self.counters = {found.name: array for found, array in counters.items()}
        self._meters = [Meter(found.name, found.size, found.unit) for found in program.meters]
        self.meters = {meter.name: meter for meter in self._meters}
        self._tables = [CompiledTable(table, self._state, map_) for table in map_.tables]
        self.tables = {table.name: table for table in self._tables}
        self._started_us = microseconds()
        self._reserve(MAX_FRAME)

    @classmethod
    def load(cls, config: bytes | str | dict[str, Any]) -> CompiledProgram:
        """Load a BMv2 JSON (the output of p4c-bm2-ss).

        NotCompilable names what the Python executor has to do; otherwise as that one's `load`.
        """
        return cls(config)

    # ---- frames

    @property
    def batch(self) -> CompiledProgram:
        """The native function."""
        return self

    @property
    def address(self) -> int:
        """Where the C function is."""
        return self._code.address(RUN_BATCH)

    @property
    def copies(self) -> int:
        """Results that one frame may cause at most."""
        return int(self._state[Word.COPIES])

    @property
    def room(self) -> int:
        """Bytes that one frame may need for its results at most."""
        return self.copies * (self._headers + MAX_FRAME)

    def new(self) -> NDArray[np.int64]:
        """A batch of no frames."""
        made = np.zeros(words.WORDS, np.int64)
        made[words.STATE] = address(self._state)
        return made

    def process(self, port: int, frame: bytes) -> Frames:
        """Take one frame that arrived at `port`; returns all frames to send, in order.

        ExecutionError: the frame met undefined behaviour; nothing is sent, registers and counters
        keep what was written before.
        """
        if not 0 <= port <= MAX_PORT:
            raise ValueError(f"port {port} is outside 0..{MAX_PORT}")
        length = len(frame)
        if length > len(self._in):
            self._reserve(length)
        needed = self.copies * (self._headers + length)
        if needed > len(self._out) or self.copies > self._out_frames.shape[1]:
            self._reserve_out(needed)
        self._in_view[:length] = frame
        self._in_frame[1:3, 0] = length, port
        one = self._one
        one[words.NOW_US] = microseconds() - self._started_us
        one[words.TAKEN] = one[words.FRAMES_OUT] = one[words.BYTES_OUT] = 0
        stopped = self._run(self._one_at)
        assert stopped != words.FULL
        if stopped == words.EVENT:
            self.collect()
        if not one[words.FRAMES_OUT]:
            return []
        rows = self._out_frames[:, : one[words.FRAMES_OUT]].T.tolist()
        return [(out, self._out_view[start : start + size].tobytes()) for start, size, out in rows]

    def _reserve(self, length: int) -> None:
        """Make room for frames of this length."""
        self._in = np.zeros(length, np.uint8)
        self._in_view = memoryview(self._in)
        self._in_frame: Words = np.zeros((3, 1), np.int64)
        self._scratch = np.zeros(self._pieces + length, np.uint8)
        self._state[Word.SCRATCH] = address(self._scratch)
        self._one = self.new()
        self._one_at = address(self._one)
        self._one[words.FRAMES] = 1
        self._one[words.IN_BYTES] = address(self._in)
        for word, row in zip((words.IN_OFFSETS, words.IN_LENGTHS, words.IN_PORTS), self._in_frame, strict=True):
            self._one[word] = address(row)
        self._reserve_out(self._headers + length)

    def _reserve_out(self, needed: int) -> None:
        """Make room for the results of one frame."""
        self._out = np.zeros(needed, np.uint8)
        self._out_view = memoryview(self._out)
        self._out_frames: Words = np.zeros((3, self.copies), np.int64)
        self._one[words.OUT_BYTES], self._one[words.OUT_SIZE] = address(self._out), needed
        self._one[words.OUT_CAPACITY] = self.copies
        for word, row in zip((words.OUT_OFFSETS, words.OUT_LENGTHS, words.OUT_PORTS), self._out_frames, strict=True):
            self._one[word] = address(row)

    def collect(self) -> None:
        """Hand out the digest of the frame that ran last; ExecutionError if it failed."""
        state = self._state
        digest, failure = int(state[Word.DIGEST]), int(state[Word.FAILURE])
        state[Word.DIGEST] = state[Word.FAILURE] = 0
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised
        if digest and self.on_digest is not None:
            declared = self._program.digests[digest]
            values = taken(self._values.tolist(), self._handover.digest_forms[digest])
            masks = [(1 << slot.bits) - 1 for slot in declared.fields]
            row = tuple(value & mask for value, mask in zip(values, masks, strict=True))
            self.on_digest(declared.name, [row])
        if failure:
            value = int(state[Word.FAILURE_LOW]) & (1 << 64) - 1 | int(state[Word.FAILURE_HIGH]) << 64
            raise error_of(Failure(failure), value, int(state[Word.FAILURE_LIMIT]))

    # ---- what compiled code asks for

    @property
    def on_log(self) -> Callable[[str], None] | None:
        """Takes the program's messages, if someone wants them."""
        return self._on_log

    @on_log.setter
    def on_log(self, handler: Callable[[str], None] | None) -> None:
        self._on_log = handler
        self._state[Word.LOGGING] = handler is not None

    def _called(self, kind: int, number: int, a: int, b: int) -> int:
        try:
            return self._answer(Call(kind), number, a, b)
        except BaseException as error:  # no exception may pass through compiled code
            self._raised = error
            self._state[Word.FAILURE] = Failure.ASSERT
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
        text = self._handover.logs[number].text
        for value in taken(self._values.tolist(), self._handover.log_forms[number]):
            text = text.replace("{}", str(value), 1)
        if self._on_log is not None:
            self._on_log(text)
        return 0


def check(program: Program) -> None:
    """NotCompilable for what the tables cannot do."""
    for table in program.tables:
        if sum(key.kind == "lpm" for key in table.keys) > 1:
            raise NotCompilable("a table with two prefix keys")
