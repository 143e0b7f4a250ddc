"""Programs in Python behind the interface of a compiled one."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p4reduce_runtime.records import Record, dtype_of, zeros
from p4reduce_runtime.underlay import ENCAP_BYTES
from p4reduce_switch.program import ExecutionError, batch
from p4reduce_switch.program.state.replication import Replication

_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


def _array(record: type[Record], address: int, count: int = 1) -> Any:
    """Return the records at an address."""
    kind = dtype_of(record)
    return np.frombuffer((ctypes.c_char * (kind.itemsize * count)).from_address(int(address)), kind)


class PythonBatch:
    """Gives any program a `batch` that calls its `process`. `max_bytes` and `copies` are for each frame."""

    def __init__(self, program: Any, max_bytes: int = 1 << 18, copies: int = 64) -> None:
        self.program = program
        self.max_bytes, self.copies = max_bytes, copies
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

    def new(self) -> NDArray[np.void]:
        made: NDArray[np.void] = zeros(batch.Batch)
        return made

    def process(self, port: int, frame: bytes) -> Any:
        try:
            return self.program.process(port, frame)
        finally:
            self._give()

    def collect(self, thread: int = 0) -> None:
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
        run = _array(batch.Batch, address)[0]
        frames, capacity = int(run["frames"]), int(run["out_capacity"])
        arrived, results = (
            _array(batch.Frame, run["in_frames"], frames),
            _array(batch.Frame, run["out_frames"], capacity),
        )
        self.batches.append(frames - int(run["frames_run"]))
        while run["frames_run"] < frames:
            free = run["out_size"] - run["bytes_out"], capacity - run["frames_out"]
            if free[0] < self.max_bytes or free[1] < self.copies:
                return batch.FULL
            start, length, port = arrived[run["frames_run"]].tolist()
            run["frames_run"] += 1
            frame = ctypes.string_at(int(run["in_bytes"]) + start, length)
            try:
                outputs = self.program.process(port, frame)
            except ExecutionError as error:
                self._failure, outputs = error, []
            for port, output in outputs:
                at = int(run["bytes_out"])
                ctypes.memmove(int(run["out_bytes"]) + at, output, len(output))
                results[run["frames_out"]] = at, len(output), port
                run["bytes_out"] += len(output)
                run["frames_out"] += 1
            if self._digests or self._failure is not None:
                return batch.EVENT
        return batch.DONE


class Reflector:
    """A program that sends every frame back by its ingress port: it swaps the addresses. Checksums stay right."""

    def __init__(self) -> None:
        self.on_digest: Any = None
        self.action_profiles: dict[str, Any] = {}
        self.queues = None
        self.replication = Replication()

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        if len(frame) < ENCAP_BYTES:
            return []
        swapped = frame[6:12] + frame[:6] + frame[12:26] + frame[30:34] + frame[26:30] + frame[36:38] + frame[34:36]
        return [(port, swapped + frame[38:])]
