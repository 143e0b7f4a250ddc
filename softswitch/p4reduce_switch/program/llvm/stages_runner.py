"""Runs frames through a program's stages under the traffic manager, for programs with further passes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from p4reduce_switch.program import packet
from p4reduce_switch.program.ir.features import features
from p4reduce_switch.program.ir.program import Program
from p4reduce_switch.program.layout import Layout
from p4reduce_switch.program.llvm.host_state import HostState
from p4reduce_switch.program.llvm.stages_code import STAGES
from p4reduce_switch.program.llvm.target import Loaded
from p4reduce_switch.program.memory import Word
from p4reduce_switch.program.state.stateful import microseconds
from p4reduce_switch.program.state.words import address
from p4reduce_switch.program.traffic import DigestHandler, Frames, Stages, TrafficManager

STAGE = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_void_p
)
FIRST_ROOM = 1 << 16


class Shape:
    """How Python reads a record: for each slot of 8 bytes the number of its word and whether it is signed."""

    def __init__(self, layout: Layout) -> None:
        self.kinds, self.offsets = layout.kinds, layout.offsets
        self.words = [
            (layout.offsets[slot] // 8, kind.signed) if kind.bytes_ == 8 and not kind.wide else None
            for slot, kind in enumerate(layout.kinds)
        ]
        self.memory = ctypes.c_char * max(8, layout.size)


class Record:
    """A packet: a record in memory and its payload, read and written by slots as the traffic manager does."""

    __slots__ = ("_bytes", "_signed", "_unsigned", "memory", "payload", "shape")

    def __init__(self, shape: Shape, memory: Any, payload: bytes = b"") -> None:
        self.shape = shape
        self.memory = memory
        self.payload = payload
        self._bytes = memoryview(memory).cast("B")
        self._signed, self._unsigned = self._bytes.cast("q"), self._bytes.cast("Q")

    def __getitem__(self, key: int | slice) -> Any:
        if isinstance(key, slice):
            if key.start is None:
                return Record(self.shape, self.shape.memory.from_buffer_copy(self.memory), self.payload)
            return [self[slot] for slot in range(key.start, key.stop)]
        if key == packet.PAYLOAD:
            return self.payload
        word = self.shape.words[key]
        if word is not None:
            return (self._signed if word[1] else self._unsigned)[word[0]]
        kind, start = self.shape.kinds[key], self.shape.offsets[key]
        data = self._bytes[start : start + kind.bytes_]
        return int.from_bytes(data, "big" if kind.wide else "little", signed=kind.signed)

    def __setitem__(self, key: int | slice, value: Any) -> None:
        if isinstance(key, slice):
            for slot, number in zip(range(key.start, key.stop), value, strict=True):
                self[slot] = number
            return
        if key == packet.PAYLOAD:
            self.payload = value
            return
        word = self.shape.words[key]
        if word is not None:
            (self._signed if word[1] else self._unsigned)[word[0]] = value
            return
        kind, start = self.shape.kinds[key], self.shape.offsets[key]
        data = value.to_bytes(kind.bytes_, "big" if kind.wide else "little", signed=kind.signed)
        self._bytes[start : start + kind.bytes_] = data


class StagesRunner:
    """The traffic manager with compiled stages; the deparser may write `headers` bytes before the payload."""

    def __init__(
        self, code: Loaded, host: HostState, program: Program, layout: Layout, headers: int, on_digest: DigestHandler
    ) -> None:
        self._code = code
        self._functions = {name: STAGE(code.address(f"stage_{name}")) for name in STAGES}
        self._host = host
        self._state = address(host.state)
        self._run_deparser = self._stage("deparse")
        self._headers = headers
        self._room = 0
        self._reserve(FIRST_ROOM)
        shape = Shape(layout)
        checksums = program.checksums
        stages = Stages(
            parse=self._stage("parse"),
            verify=self._stage("verify") if any(checksum.verify for checksum in checksums) else None,
            ingress=self._stage("ingress"),
            egress=self._stage("egress"),
            update=self._stage("update") if any(checksum.update for checksum in checksums) else None,
            deparse=self._deparse,
        )
        blank = Record(shape, shape.memory())
        self._traffic = TrafficManager(
            program,
            features(program),
            stages,
            host.replication,
            on_digest,
            blank=blank,  # type: ignore[arg-type]
        )

    def process(self, port: int, frame: bytes) -> Frames:
        """Run one frame with all its copies and passes; return the frames to send, in order."""
        self._host.state[Word.NOW_US] = microseconds() - self._host.started_us
        return self._traffic.process(port, frame)

    def _reserve(self, length: int) -> None:
        """Allocate buffers for a frame of this length."""
        self._room = length
        self._host.reserve(length)
        self._out = np.zeros(self._headers + length, np.uint8)
        self._out_view = self._out.data
        self._out_at = address(self._out)

    def _stage(self, name: str) -> Callable[..., Any]:
        """Return a function that runs a stage over a packet's payload, or over a given frame."""
        function, host, state = self._functions[name], self._host, self._state

        def run(fields: Any, frame: bytes | None = None) -> int:
            data = fields.payload if frame is None else frame
            if len(data) > self._room:
                self._reserve(len(data))
            result: int = function(state, fields.memory, data, len(data), self._out_at)
            if result < 0 or host.raised is not None:
                host.collect()
            return result

        return run

    def _deparse(self, fields: Any) -> bytes:
        length = self._run_deparser(fields)
        return self._out_view[:length].tobytes()
