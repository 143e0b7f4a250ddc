"""Runs frames through a program's native function: in batches, or one by one with `process`."""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

from p4reduce_runtime.records import zeros
from p4reduce_switch.program.batch import EVENT, FULL, Batch, Frame
from p4reduce_switch.program.llvm.batch_code import RUN_BATCH
from p4reduce_switch.program.llvm.host_state import HostState, ThreadState
from p4reduce_switch.program.llvm.target import Loaded
from p4reduce_switch.program.memory import Word, address
from p4reduce_switch.program.state.stateful import microseconds
from p4reduce_switch.program.trace import CopyLog, Log
from p4reduce_switch.program.traffic import Frames

MAX_FRAME = (1 << 16) + 1024
"""Bytes of the longest frame for which buffers are allocated at first: the longest UDP datagram, with headers."""
RUN = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


class BatchRunner:
    """A `NativeBatch`; `headers` are the bytes that the deparser may write before the payload."""

    def __init__(self, code: Loaded, host: HostState, headers: int) -> None:
        self._code = code
        self.address = code.address(RUN_BATCH)
        self._run = RUN(self.address)
        self._host = host
        self._state = host.state
        self._headers = headers
        self.started_us = host.started_us
        """The origin of the program's time (NOW_US), on the monotonic clock."""
        self._traced = self._run
        self.threads: list[ThreadState] = []
        """The states of further threads that may run its frames."""
        self._reserve(MAX_FRAME)

    def trace_with(self, code: Loaded) -> None:
        """Run frames that have a log with this code."""
        self._traced_code, self._traced = code, RUN(code.address(RUN_BATCH))

    @property
    def copies(self) -> int:
        """The maximum number of results of one frame."""
        return int(self._state[Word.COPIES])

    @property
    def max_bytes(self) -> int:
        """The maximum number of bytes of one frame's results."""
        return self.copies * (self._headers + MAX_FRAME)

    def new(self) -> NDArray[np.void]:
        """Return a batch without frames."""
        made: NDArray[np.void] = zeros(Batch)
        made["program"] = address(self._state)
        return made

    def process(self, port: int, frame: bytes, log: Log | None = None) -> Frames:
        """Run one frame; return the frames to send, in order. With a log its steps are reported there."""
        length = len(frame)
        if length > len(self._in):
            self._reserve(length)
        needed = self.copies * (self._headers + length)
        if needed > len(self._out) or self.copies > len(self._out_frames):
            self._reserve_out(needed)
        self._in_view[:length] = frame
        self._in_frame[0] = 0, length, port
        one = self._one
        one["now_us"] = microseconds() - self.started_us
        one["frames_run"] = one["frames_out"] = one["bytes_out"] = 0
        if log is None:
            stopped = self._run(self._one_at)
        else:
            self._host.on_step = CopyLog(log).add
            stopped = self._traced(self._one_at)
        assert stopped != FULL
        if stopped == EVENT:
            self._host.collect()
        rows = self._out_frames[: one["frames_out"]].tolist()
        frames = [(out, self._out_view[start : start + size].tobytes()) for start, size, out in rows]
        if log is not None:
            for event, (_, sent) in zip(log.sent(), frames, strict=True):
                event.frame = sent.hex()
        return frames

    def _reserve(self, length: int) -> None:
        """Allocate buffers for a frame of this length."""
        self._host.reserve(length)
        self._in = np.zeros(length, np.uint8)
        self._in_view = self._in.data
        self._in_frame: NDArray[np.void] = zeros(Frame)
        batch = self.new()
        self._one_at = address(batch)
        self._one: np.void = batch[0]
        self._one["frames"] = 1
        self._one["in_bytes"], self._one["in_frames"] = address(self._in), address(self._in_frame)
        self._reserve_out(self._headers + length)

    def _reserve_out(self, needed: int) -> None:
        """Allocate buffers for the results of one frame."""
        self._out = np.zeros(needed, np.uint8)
        self._out_view = self._out.data
        self._out_frames: NDArray[np.void] = zeros(Frame, self.copies)
        self._one["out_bytes"], self._one["out_size"] = address(self._out), needed
        self._one["out_frames"], self._one["out_capacity"] = address(self._out_frames), self.copies
