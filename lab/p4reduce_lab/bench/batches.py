"""Runs frames through a program in this process, many in one native call."""

from __future__ import annotations

import ctypes
import time
from typing import Final

import numpy as np
from numpy.typing import NDArray

from p4reduce_lab.bench.load import Contributions
from p4reduce_runtime.records import zeros
from p4reduce_switch.program import Program, batch

BATCH: Final = 64
"""Frames a batch."""


class Runner:
    """A program and the frames it is to run, those of a round in batches of its C function."""

    def __init__(self, program: Program, frames: Contributions) -> None:
        """The program has a native batch."""
        native = program.batch
        assert native is not None
        self._program, self._frames = program, frames
        self.results = 0
        """Frames that came out, so far."""
        self._call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(native.address)
        self._capacity = BATCH * frames.world_size + BATCH
        size = frames.frame_bytes
        self._in_frames: NDArray[np.void] = zeros(batch.Frame, BATCH)
        self._in_frames["offset"], self._in_frames["length"] = np.arange(BATCH) * size, size
        self._staged = np.zeros((BATCH, size), np.uint8)
        self._out = np.zeros(max(native.max_bytes, size) * (self._capacity + 1), np.uint8)
        self._results: NDArray[np.void] = zeros(batch.Frame, self._capacity)
        self._batch_array = native.new()
        self._batch: np.void = self._batch_array[0]

    def cpu_seconds(self, frames: int) -> float:
        """Run at least so many frames; return the processor seconds of this thread a frame, in the program alone."""
        done, spent = 0, 0
        while done < frames:
            self._frames.move_on()
            nanoseconds, results = self._run()
            self.results += results
            spent += nanoseconds
            done += len(self._frames)
        return spent / done / 1e9

    def _run(self) -> tuple[int, int]:
        """Run all frames; return nanoseconds in the C function, and how many frames came out."""
        run, frames = self._batch, self._frames
        spent = results = 0
        for first in range(0, len(frames), BATCH):
            count = min(BATCH, len(frames) - first)
            self._staged[:count] = frames.bytes[first : first + count]  # as if they had just been received
            self._in_frames["port"][:count] = frames.ports[first : first + count]
            run["frames"], run["now_us"] = count, time.monotonic_ns() // 1000
            run["in_bytes"], run["in_frames"] = self._staged.ctypes.data, self._in_frames.ctypes.data
            run["out_bytes"], run["out_size"] = self._out.ctypes.data, self._out.nbytes
            run["out_frames"], run["out_capacity"] = self._results.ctypes.data, self._capacity
            run["frames_run"] = run["frames_out"] = run["bytes_out"] = 0
            address = self._batch_array.ctypes.data
            began = time.thread_time_ns()
            why = self._call(address)
            spent += time.thread_time_ns() - began
            while why != batch.DONE:
                if why == batch.EVENT:
                    self._program.collect()
                results += int(run["frames_out"])
                run["frames_out"] = run["bytes_out"] = 0
                began = time.thread_time_ns()
                why = self._call(address)
                spent += time.thread_time_ns() - began
            results += int(run["frames_out"])
        return spent, results
