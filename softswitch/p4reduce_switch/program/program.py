"""A v1model program, loaded: what runs its frames, and the state that P4Runtime reads and writes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from p4reduce_switch.program.errors import UnsupportedConstructError
from p4reduce_switch.program.ir import program as ir
from p4reduce_switch.program.ir.features import features
from p4reduce_switch.program.ir.program import TargetOptions
from p4reduce_switch.program.ir.sharing import can_share
from p4reduce_switch.program.layout import Layout
from p4reduce_switch.program.llvm.batch_runner import BatchRunner
from p4reduce_switch.program.llvm.build import object_file
from p4reduce_switch.program.llvm.deparser import longest
from p4reduce_switch.program.llvm.host_abi import HostAbi
from p4reduce_switch.program.llvm.host_state import HostState
from p4reduce_switch.program.llvm.stages_runner import StagesRunner
from p4reduce_switch.program.llvm.target import Loaded
from p4reduce_switch.program.load import DEFAULT_TARGET, load_program
from p4reduce_switch.program.memory import StateOffsets
from p4reduce_switch.program.packet import MAX_PORT
from p4reduce_switch.program.queues import EgressQueues
from p4reduce_switch.program.trace import Log, PacketTrace, TraceHandler
from p4reduce_switch.program.traffic import DigestHandler, Frames

Config = bytes | str | dict[str, Any]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A v1model program as machine code, without state: each `Program` made of it has its own."""

    program: ir.Program
    in_stages: bool
    """Whether the traffic manager runs its packets block by block."""
    layout: Layout
    offsets: StateOffsets
    host_abi: HostAbi
    code: Loaded
    config: Config

    def traced(self) -> Traced:
        """Compile it again, as code that reports each step of a frame. Raises UnsupportedConstructError."""
        host_abi = HostAbi(self.program, self.layout, traced=True)
        return Traced(host_abi, Loaded(object_file(self.config, self.program, self.layout, self.offsets, host_abi)))


@dataclass(frozen=True, slots=True)
class Traced:
    """The code of a program that reports its steps."""

    host_abi: HostAbi
    code: Loaded


def compile_program(config: Config, target: TargetOptions = DEFAULT_TARGET) -> Compiled:
    """Compile a BMv2 JSON (the output of p4c-bm2-ss). Raises ProgramError.

    InvalidProgramError, UnsupportedConstructError.
    """
    program = load_program(config, target)
    _check(program)
    in_stages = features(program).in_stages
    layout, offsets = Layout(program, in_memory=in_stages), StateOffsets(program)
    host_abi = HostAbi(program, layout)
    code = Loaded(object_file(config, program, layout, offsets, host_abi))
    return Compiled(program, in_stages, layout, offsets, host_abi, code, config)


class Program:
    """A v1model program as machine code. Everything that P4Runtime reaches is here by the name that the program has.

    Between two calls of `process` all state may be read and written; the caller makes sure that no two calls run at
    the same time.
    """

    def __init__(
        self, config: Config | Compiled, target: TargetOptions = DEFAULT_TARGET, queues: EgressQueues[Any] | None = None
    ) -> None:
        """Load a BMv2 JSON, or make the state of what `compile_program` returned. Raises ProgramError.

        `queues` are the egress queues, if its packets pass queues; None: queues of its own.
        """
        compiled = config if isinstance(config, Compiled) else compile_program(config, target)
        program, layout, code = compiled.program, compiled.layout, compiled.code
        headers = longest(program.deparser, layout)
        self.compiled = compiled
        self.traces = False
        """Whether frames can be traced: see `trace_with`."""
        self._traced = 0
        self._host = host = HostState(program, layout, compiled.offsets, compiled.host_abi)
        self.tables = host.tables
        self.counters = host.counters
        """Indirect counters; direct ones are in the tables."""
        self.registers = host.registers
        self.meters = host.meters
        """Indirect meters; direct ones are in the tables."""
        self.action_profiles = host.action_profiles
        self.value_sets = host.value_sets
        self.replication = host.replication
        self.random = host.random
        self.batch: BatchRunner | None = None
        """The native function that runs many frames in one call; None if the traffic manager runs them."""
        self.queues: EgressQueues[Any] | None = None
        """The egress queues; None if packets do not pass queues."""
        self._runner: BatchRunner | StagesRunner
        if compiled.in_stages:
            egress_queues = EgressQueues() if queues is None else queues
            self._runner = self._stages = StagesRunner(
                code, host, program, layout, headers, self._digest, egress_queues
            )
            self.queues = self._stages.queues
        else:
            self._runner = self.batch = BatchRunner(code, host, headers)
            if can_share(program):
                self.batch.threads = [host.new_thread(compiled.offsets) for _ in range(1, program.target.threads)]

    def trace_with(self, traced: Traced) -> None:
        """Trace frames by this code, which works on the same state; it is what `compiled.traced()` returned."""
        self._host.trace_with(traced.host_abi)
        self._runner.trace_with(traced.code)
        self.traces = True

    def process(self, port: int, frame: bytes, on_trace: TraceHandler | None = None) -> Frames:
        """Take one frame that arrived at `port`; returns (port, frame) of all frames to send, in order.

        With queues there are none: see `depart`. `on_trace` receives what it did, if the program traces;
        with queues once more for each packet that `depart` runs.

        ExecutionError: the frame met undefined behaviour; nothing is sent, registers and counters
        keep what was written before.
        """
        if not 0 <= port <= MAX_PORT:
            raise ValueError(f"port {port} is outside 0..{MAX_PORT}")
        if on_trace is None or not self.traces:
            return self._runner.process(port, frame)
        trace = PacketTrace(self._traced, port, [], at_s=time.time())
        log = Log(self.compiled.program, self.tables, on_trace, trace, frame)
        self._traced += 1
        with log.handed_over():
            return self._runner.process(port, frame, log)

    def depart(self) -> Frames | None:
        """Run the next packet of the queues; as `process`, but None if no packet is due."""
        return self._stages.depart()

    def collect(self, thread: int = 0) -> None:
        """After a batch of a thread has stopped with an EVENT: pass on the digest of the last frame run.

        ExecutionError: as for `process`; a digest that the frame sent before is handed out first.
        """
        threads = [] if self.batch is None else self.batch.threads
        self._host.collect(*threads[thread - 1 : thread])

    @property
    def on_digest(self) -> DigestHandler | None:
        """Takes each digest, while `process` or `collect` runs."""
        return self._host.on_digest

    @on_digest.setter
    def on_digest(self, handler: DigestHandler | None) -> None:
        self._host.on_digest = handler

    @property
    def on_log(self) -> Callable[[str], None] | None:
        """Takes the program's messages."""
        return self._host.on_log

    @on_log.setter
    def on_log(self, handler: Callable[[str], None] | None) -> None:
        self._host.on_log = handler

    def _digest(self, name: str, rows: list[tuple[int, ...]]) -> None:
        if self._host.on_digest is not None:
            self._host.on_digest(name, rows)


def _check(program: ir.Program) -> None:
    for table in program.tables:
        if sum(key.kind == "lpm" for key in table.keys) > 1:
            raise UnsupportedConstructError(f"table {table.name} with two prefix keys")
