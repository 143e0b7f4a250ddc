"""Runs frames through a program in this process, many in one native call."""

from __future__ import annotations

import ctypes
import time
from typing import Final

import numpy as np

from p4reduce_lab.bench.load import Contributions
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
        self._offsets = np.arange(BATCH, dtype=np.int64) * size
        self._lengths = np.full(BATCH, size, np.int64)
        self._staged = np.zeros((BATCH, size), np.uint8)
        self._out = np.zeros(max(native.room, size) * (self._capacity + 1), np.uint8)
        self._results = np.zeros((3, self._capacity), np.int64)
        self._batch = native.new()

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
        words, frames = self._batch, self._frames
        spent = results = 0
        for first in range(0, len(frames), BATCH):
            count = min(BATCH, len(frames) - first)
            self._staged[:count] = frames.bytes[first : first + count]  # as if they had just been received
            words[batch.FRAMES] = count
            words[batch.IN_BYTES] = self._staged.ctypes.data
            words[batch.IN_OFFSETS] = self._offsets.ctypes.data
            words[batch.IN_LENGTHS] = self._lengths.ctypes.data
            words[batch.IN_PORTS] = frames.ports.ctypes.data + 8 * first
            words[batch.NOW_US] = time.monotonic_ns() // 1000
            words[batch.OUT_BYTES], words[batch.OUT_SIZE] = self._out.ctypes.data, self._out.nbytes
            for word, row in zip((batch.OUT_OFFSETS, batch.OUT_LENGTHS, batch.OUT_PORTS), self._results, strict=True):
                words[word] = row.ctypes.data
            words[batch.OUT_CAPACITY] = self._capacity
            words[batch.FRAMES_RUN] = words[batch.FRAMES_OUT] = words[batch.BYTES_OUT] = 0
            address = words.ctypes.data
            began = time.thread_time_ns()
            why = self._call(address)
            spent += time.thread_time_ns() - began
            while why != batch.DONE:
                if why == batch.EVENT:
                    self._program.collect()
                results += int(words[batch.FRAMES_OUT])
                words[batch.FRAMES_OUT] = words[batch.BYTES_OUT] = 0
                began = time.thread_time_ns()
                why = self._call(address)
                spent += time.thread_time_ns() - began
            results += int(words[batch.FRAMES_OUT])
        return spent, results
