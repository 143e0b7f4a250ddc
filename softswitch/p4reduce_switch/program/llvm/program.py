"""A program in the compiled executor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from p4reduce_switch.program.executor import DigestHandler
from p4reduce_switch.program.ir.features import features
from p4reduce_switch.program.ir.program import Program
from p4reduce_switch.program.llvm.batch_runner import BatchRunner
from p4reduce_switch.program.llvm.build import object_file
from p4reduce_switch.program.llvm.deparser import longest
from p4reduce_switch.program.llvm.errors import NotCompilable
from p4reduce_switch.program.llvm.handover import Handover
from p4reduce_switch.program.llvm.layout import Layout
from p4reduce_switch.program.llvm.memory import StateMap
from p4reduce_switch.program.llvm.shared import Shared
from p4reduce_switch.program.llvm.stages_runner import StagesRunner
from p4reduce_switch.program.llvm.target import Loaded
from p4reduce_switch.program.load import load_program
from p4reduce_switch.program.packet import MAX_PORT
from p4reduce_switch.program.traffic import Frames


class CompiledProgram:
    """A v1model program as machine code: an `Executor`. Without `stages` only a program that has a native batch."""

    def __init__(self, config: bytes | str | dict[str, Any], *, stages: bool = True) -> None:
        self.description = "llvm"
        program = load_program(config)
        _check(program)
        passes = features(program).makes_passes
        if passes and not stages:
            raise NotCompilable("clone, resubmit and recirculate are faster there")
        layout, map_ = Layout(program, in_memory=passes), StateMap(program)
        handover = Handover(program, layout)
        code = Loaded(object_file(config, program, layout, map_, handover))
        headers = longest(program.deparser, layout)
        self._shared = shared = Shared(program, layout, map_, handover)
        self.tables = shared.tables
        self.counters = shared.counters
        self.registers = shared.registers
        self.meters = shared.meters
        self.action_profiles = shared.action_profiles
        self.value_sets = shared.value_sets
        self.replication = shared.replication
        self.random = shared.random
        self.batch: BatchRunner | None = None
        self._runner: BatchRunner | StagesRunner
        if passes:
            self._runner = StagesRunner(code, shared, program, layout, headers, self._digest)
        else:
            self._runner = self.batch = BatchRunner(code, shared, headers)

    @classmethod
    def load(cls, config: bytes | str | dict[str, Any], *, stages: bool = True) -> CompiledProgram:
        """Load a BMv2 JSON (the output of p4c-bm2-ss).

        NotCompilable names what the Python executor has to do; otherwise as that one's `load`.
        """
        return cls(config, stages=stages)

    def process(self, port: int, frame: bytes) -> Frames:
        """Take one frame that arrived at `port`; returns all frames to send, in order.

        ExecutionError: the frame met undefined behaviour; nothing is sent, registers and counters
        keep what was written before.
        """
        if not 0 <= port <= MAX_PORT:
            raise ValueError(f"port {port} is outside 0..{MAX_PORT}")
        return self._runner.process(port, frame)

    def collect(self) -> None:
        """Hand out the digest of the frame that ran last in a batch; ExecutionError if it failed."""
        self._shared.collect()

    @property
    def on_digest(self) -> DigestHandler | None:
        """Takes each digest."""
        return self._shared.on_digest

    @on_digest.setter
    def on_digest(self, handler: DigestHandler | None) -> None:
        self._shared.on_digest = handler

    @property
    def on_log(self) -> Callable[[str], None] | None:
        """Takes the program's messages, if someone wants them."""
        return self._shared.on_log

    @on_log.setter
    def on_log(self, handler: Callable[[str], None] | None) -> None:
        self._shared.on_log = handler

    def _digest(self, name: str, rows: list[tuple[int, ...]]) -> None:
        if self._shared.on_digest is not None:
            self._shared.on_digest(name, rows)


def _check(program: Program) -> None:
    """NotCompilable for what the tables cannot do."""
    for table in program.tables:
        if sum(key.kind == "lpm" for key in table.keys) > 1:
            raise NotCompilable("a table with two prefix keys")
