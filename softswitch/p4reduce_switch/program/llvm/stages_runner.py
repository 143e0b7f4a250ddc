"""Runs frames through the stages of a program that clones, resubmits, recirculates or uses queues."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from p4reduce_switch.program.ir.features import features
from p4reduce_switch.program.ir.program import Program
from p4reduce_switch.program.layout import Layout
from p4reduce_switch.program.llvm.host_state import HostState
from p4reduce_switch.program.llvm.target import Loaded
from p4reduce_switch.program.memory import Word, address
from p4reduce_switch.program.queues import EgressQueues
from p4reduce_switch.program.state.stateful import microseconds
from p4reduce_switch.program.trace import CopyLog, Log
from p4reduce_switch.program.traffic import DigestHandler, Frames, Record, Shape, Stages, TrafficManager

STAGE = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_void_p
)
FIRST_MAX_FRAME = 1 << 16


class StagesRunner:
    """The traffic manager with compiled stages; the deparser may write `headers` bytes before the payload."""

    def __init__(
        self,
        code: Loaded,
        host: HostState,
        program: Program,
        layout: Layout,
        headers: int,
        on_digest: DigestHandler,
        queues: EgressQueues[Record],
    ) -> None:
        self._code = code
        self._host = host
        self._state = address(host.state)
        self._headers = headers
        self._max_frame = 0
        self._reserve(FIRST_MAX_FRAME)
        shape = Shape(layout)
        self._verifies = any(checksum.verify for checksum in program.checksums)
        self._updates = any(checksum.update for checksum in program.checksums)
        blank = Record(shape)
        found = features(program)
        self.queues: EgressQueues[Record] | None = queues if found.queued else None
        self._traffic = TrafficManager(
            program, found, self._stages(code), host.replication, on_digest, blank, self.queues
        )

    def trace_with(self, code: Loaded) -> None:
        """Run packets that have a log with this code."""
        self._traced_code, self._traffic.traced = code, self._stages(code)

    def process(self, port: int, frame: bytes, log: Log | None = None) -> Frames:
        """Run one frame with all its copies and passes; return the frames to send, in order."""
        self._host.state[Word.NOW_US] = microseconds() - self._host.started_us
        return self._traffic.process(port, frame, None if log is None else CopyLog(log))

    def depart(self) -> Frames | None:
        """Run the next packet of the queues; return the frames to send, or None if no packet is due."""
        self._host.state[Word.NOW_US] = microseconds() - self._host.started_us
        return self._traffic.depart()

    def _reserve(self, length: int) -> None:
        """Allocate buffers for a frame of this length."""
        self._max_frame = length
        self._host.reserve(length)
        self._out = np.zeros(self._headers + length, np.uint8)
        self._out_view = self._out.data
        self._out_at = address(self._out)

    def _stages(self, code: Loaded) -> Stages:
        deparse = self._stage(code, "deparse")
        return Stages(
            parse=self._stage(code, "parse"),
            verify=self._stage(code, "verify") if self._verifies else None,
            ingress=self._stage(code, "ingress"),
            egress=self._stage(code, "egress"),
            update=self._stage(code, "update") if self._updates else None,
            deparse=lambda fields: self._out_view[: deparse(fields)].tobytes(),
        )

    def _stage(self, code: Loaded, name: str) -> Callable[..., int]:
        """Return a function that runs a stage over a packet's payload, or over a given frame."""
        function, host, state = STAGE(code.address(f"stage_{name}")), self._host, self._state

        def run(fields: Record, frame: bytes | None = None) -> int:
            data = fields.payload if frame is None else frame
            if len(data) > self._max_frame:
                self._reserve(len(data))
            if fields.log is not None:
                host.on_step = fields.log.add
            result: int = function(state, fields.memory, data, len(data), self._out_at)
            if result < 0 or host.raised is not None:
                host.collect()
            return result

        return run
