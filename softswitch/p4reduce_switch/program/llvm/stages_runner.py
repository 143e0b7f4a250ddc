"""Runs frames through a program's stages under Python's traffic manager, for programs that make further passes."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from p4reduce_switch.program import packet
from p4reduce_switch.program.executor import DigestHandler
from p4reduce_switch.program.ir.features import features
from p4reduce_switch.program.ir.program import Program
from p4reduce_switch.program.llvm.arrays import Words, address
from p4reduce_switch.program.llvm.layout import Layout
from p4reduce_switch.program.llvm.shared import Shared
from p4reduce_switch.program.llvm.stages_code import STAGES
from p4reduce_switch.program.llvm.target import Loaded
from p4reduce_switch.program.traffic import Frames, Stages, TrafficManager

STAGE = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_void_p
)
FIRST_ROOM = 1 << 16


class Record:
    """A packet: a record in memory and its payload, read and written by slots as the traffic manager does."""

    def __init__(self, layout: Layout, memory: Words, payload: bytes = b"") -> None:
        self.layout = layout
        self.memory = memory
        self.payload = payload
        self.address = address(memory)
        self._view = memory.data.cast("B")

    def __getitem__(self, key: int | slice) -> Any:
        if isinstance(key, slice):
            if key == slice(None):
                return Record(self.layout, self.memory.copy(), self.payload)
            return [self[slot] for slot in range(*key.indices(len(self.layout.kinds)))]
        if key == packet.PAYLOAD:
            return self.payload
        kind, start = self.layout.kinds[key], self.layout.offsets[key]
        data = self._view[start : start + kind.bytes_]
        return int.from_bytes(data, "big" if kind.wide else "little", signed=kind.signed)

    def __setitem__(self, key: int | slice, value: Any) -> None:
        if isinstance(key, slice):
            for slot, one in zip(range(*key.indices(len(self.layout.kinds))), value, strict=True):
                self[slot] = one
        elif key == packet.PAYLOAD:
            self.payload = value
        else:
            kind, start = self.layout.kinds[key], self.layout.offsets[key]
            order = "big" if kind.wide else "little"
            data = value.to_bytes(kind.bytes_, order, signed=kind.signed)
            self._view[start : start + kind.bytes_] = data


class StagesRunner:
    """The traffic manager with compiled stages; `headers` are bytes that the deparser may write before the payload."""

    def __init__(
        self, code: Loaded, shared: Shared, program: Program, layout: Layout, headers: int, on_digest: DigestHandler
    ) -> None:
        self._code = code
        self._functions = {name: STAGE(code.address(f"stage_{name}")) for name in STAGES}
        self._shared = shared
        self._state = address(shared.state)
        self._headers = headers
        self._room = 0
        self._reserve(FIRST_ROOM)
        blank = Record(layout, np.zeros(max(1, layout.size // 8), np.int64))
        stages = Stages(
            parse=lambda fields, frame: self._call("parse", fields, frame),
            verify=lambda fields: self._run("verify", fields),
            ingress=lambda fields: self._run("ingress", fields),
            egress=lambda fields: self._run("egress", fields),
            update=lambda fields: self._run("update", fields),
            deparse=self._deparse,
        )
        self._traffic = TrafficManager(
            program,
            features(program),
            stages,
            shared.replication,
            on_digest,
            blank=blank,  # type: ignore[arg-type]
        )

    def process(self, port: int, frame: bytes) -> Frames:
        """Run one frame and all that comes of it; returns all frames to send, in order."""
        return self._traffic.process(port, frame)

    def _reserve(self, length: int) -> None:
        """Make room for a frame of this length."""
        self._room = length
        self._shared.reserve(length)
        self._out = np.zeros(self._headers + length, np.uint8)
        self._out_view = self._out.data
        self._out_at = address(self._out)

    def _call(self, name: str, fields: Any, data: bytes) -> int:
        if len(data) > self._room:
            self._reserve(len(data))
        result: int = self._functions[name](self._state, fields.address, data, len(data), self._out_at)
        self._shared.collect()
        return result

    def _run(self, name: str, fields: Any) -> None:
        self._call(name, fields, fields.payload)

    def _deparse(self, fields: Any) -> bytes:
        length = self._call("deparse", fields, fields.payload)
        return self._out_view[:length].tobytes()
