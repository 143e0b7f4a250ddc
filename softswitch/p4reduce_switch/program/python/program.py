"""A program in the Python executor."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from p4reduce_switch.program.executor import DigestHandler
from p4reduce_switch.program.ir.features import features
from p4reduce_switch.program.load import load_program
from p4reduce_switch.program.python.module import compile_program
from p4reduce_switch.program.state.replication import Replication
from p4reduce_switch.program.traffic import Frames, TrafficManager


class Program:
    """A v1model program, loaded and ready to run: an `Executor`. `source` is the Python that it became."""

    def __init__(self, config: bytes | str | dict[str, Any]) -> None:
        self.on_digest: DigestHandler | None = None
        self.on_log: Callable[[str], None] | None = None
        self.random = random.Random()
        self.description = "python"
        self.batch = None
        program = load_program(config)
        module = compile_program(program, self._log, self.random)
        self.source = module.source
        self.tables = module.tables
        self.counters = module.counters
        self.registers = module.registers
        self.meters = module.meters
        self.action_profiles = module.action_profiles
        self.value_sets = module.value_sets
        self.replication = Replication()
        self._traffic = TrafficManager(program, features(program), module.stages, self.replication, self._digest)

    @classmethod
    def load(cls, config: bytes | str | dict[str, Any]) -> Program:
        """Load a BMv2 JSON (the output of p4c-bm2-ss).

        UnsupportedConstruct names what the program uses and this executor does not implement;
        InvalidProgram says that this is no such JSON.
        """
        return cls(config)

    def process(self, port: int, frame: bytes) -> Frames:
        """Take one frame that arrived at `port`; returns all frames to send, in order.

        ExecutionError: the frame met undefined behaviour; nothing is sent, registers and counters
        keep what was written before.
        """
        return self._traffic.process(port, frame)

    def collect(self) -> None:
        """Nothing is left for later here."""

    def _digest(self, name: str, rows: list[tuple[int, ...]]) -> None:
        if self.on_digest is not None:
            self.on_digest(name, rows)

    def _log(self, text: str, values: tuple[int, ...]) -> None:
        """log_msg: nothing is logged on the packet path unless someone asks for it."""
        if self.on_log is not None:
            for value in values:
                text = text.replace("{}", str(value), 1)
            self.on_log(text)
