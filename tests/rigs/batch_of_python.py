"""Programs in Python behind the interface of a compiled one."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p4reduce_switch.program import ExecutionError, batch

_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


def _array(address: int, count: int, kind: Any = ctypes.c_int64) -> Any:
    return np.ctypeslib.as_array((kind * count).from_address(int(address))) if count else np.zeros(0, np.int64)


class PythonBatch:
    """Gives any program a `batch` that calls its `process` for each frame. `room` and `copies` are for each frame."""

    def __init__(self, program: Any, room: int = 1 << 18, copies: int = 64) -> None:
        self.program = program
        self.room, self.copies = room, copies
        self.on_digest: Callable[[str, list[tuple[int, ...]]], None] | None = None
        self.batches: list[int] = []
        """Frames of each call."""
        program.on_digest = lambda *digest: self._digests.append(digest)
        self._digests: list[Any] = []
        self._failure: ExecutionError | None = None
        self._function = _FUNCTION(self._run)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.program, name)

    @property
    def batch(self) -> PythonBatch:
        return self

    @property
    def address(self) -> int:
        address = ctypes.cast(self._function, ctypes.c_void_p).value
        assert address is not None
        return address

    def new(self) -> NDArray[np.int64]:
        return np.zeros(batch.WORDS, np.int64)

    def process(self, port: int, frame: bytes) -> Any:
        try:
            return self.program.process(port, frame)
        finally:
            self._give()

    def collect(self) -> None:
        self._give()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _give(self) -> None:
        digests, self._digests = self._digests, []
        for digest in digests:
            if self.on_digest is not None:
                self.on_digest(*digest)

    def _run(self, address: int) -> int:
        words = _array(address, batch.WORDS)
        frames, capacity = int(words[batch.FRAMES]), int(words[batch.OUT_CAPACITY])
        starts, lengths, ports = (
            _array(words[word], frames) for word in (batch.IN_OFFSETS, batch.IN_LENGTHS, batch.IN_PORTS)
        )
        table = [_array(words[word], capacity) for word in (batch.OUT_OFFSETS, batch.OUT_LENGTHS, batch.OUT_PORTS)]
        self.batches.append(frames - int(words[batch.FRAMES_RUN]))
        while words[batch.FRAMES_RUN] < frames:
            free = words[batch.OUT_SIZE] - words[batch.BYTES_OUT], capacity - words[batch.FRAMES_OUT]
            if free[0] < self.room or free[1] < self.copies:
                return batch.FULL
            index = int(words[batch.FRAMES_RUN])
            words[batch.FRAMES_RUN] += 1
            frame = ctypes.string_at(int(words[batch.IN_BYTES] + starts[index]), int(lengths[index]))
            try:
                outputs = self.program.process(int(ports[index]), frame)
            except ExecutionError as error:
                self._failure, outputs = error, []
            for port, output in outputs:
                at, row = int(words[batch.BYTES_OUT]), int(words[batch.FRAMES_OUT])
                ctypes.memmove(int(words[batch.OUT_BYTES]) + at, output, len(output))
                for column, number in zip(table, (at, len(output), port), strict=True):
                    column[row] = number
                words[batch.BYTES_OUT] += len(output)
                words[batch.FRAMES_OUT] += 1
            if self._digests or self._failure is not None:
                return batch.EVENT
        return batch.DONE
