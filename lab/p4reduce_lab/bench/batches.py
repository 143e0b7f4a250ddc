"""Runs frames through an executor in this process: many in one native call where it can, else one by one."""

from __future__ import annotations

import ctypes
import importlib
import time
from typing import Any, Final

import numpy as np

from p4reduce_lab.bench.load import Contributions
from p4reduce_switch.program import Executor

BATCH: Final = 64
"""Frames a batch."""


class Runner:
    """An executor and the frames it is to run."""

    def __init__(self, executor: Executor, frames: Contributions) -> None:
        self._executor, self._frames = executor, frames
        native = getattr(executor, "batch", None)  # executors without it are asked frame by frame
        self._native = None if native is None else _Native(executor, native, frames)
        self.how = "one by one" if native is None else f"batches of {BATCH}"
        self.results = 0
        """Frames that came out, so far."""

    def cpu_seconds(self, frames: int) -> float:
        """Run at least so many frames; return the processor seconds of this thread a frame, in the executor alone."""
        done, spent = 0, 0
        while done < frames:
            self._frames.move_on()
            spent += self._round()
            done += len(self._frames)
        return spent / done / 1e9

    def _round(self) -> int:
        """Run one round of all slots; return nanoseconds."""
        if self._native is not None:
            spent, results = self._native.run()
            self.results += results
            return spent
        ports = self._frames.ports.tolist()
        frames = [row.tobytes() for row in self._frames.bytes]
        process, results = self._executor.process, 0
        began = time.thread_time_ns()
        for port, frame in zip(ports, frames, strict=True):
            results += len(process(port, frame))
        spent = time.thread_time_ns() - began
        self.results += results
        return spent


class _Native:
    """The executor's C function, with the frames of a round in batches."""

    def __init__(self, executor: Any, native: Any, frames: Contributions) -> None:
        # The module came with the first native executor.
        self._words: Any = importlib.import_module("p4reduce_switch.program.batch")
        self._executor, self._frames = executor, frames
        self._call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(native.address)
        self._capacity = BATCH * frames.world_size + BATCH
        size = frames.frame_bytes
        self._offsets = np.arange(BATCH, dtype=np.int64) * size
        self._lengths = np.full(BATCH, size, np.int64)
        self._staged = np.zeros((BATCH, size), np.uint8)
        self._out = np.zeros(max(native.room, size) * (self._capacity + 1), np.uint8)
        self._results = np.zeros((3, self._capacity), np.int64)
        self._batch = native.new()

    def run(self) -> tuple[int, int]:
        """Run all frames; return nanoseconds in the C function, and how many frames came out."""
        words, batch, frames = self._words, self._batch, self._frames
        spent = results = 0
        for first in range(0, len(frames), BATCH):
            count = min(BATCH, len(frames) - first)
            self._staged[:count] = frames.bytes[first : first + count]  # as if they had just been received
            batch[words.FRAMES] = count
            batch[words.IN_BYTES] = self._staged.ctypes.data
            batch[words.IN_OFFSETS] = self._offsets.ctypes.data
            batch[words.IN_LENGTHS] = self._lengths.ctypes.data
            batch[words.IN_PORTS] = frames.ports.ctypes.data + 8 * first
            batch[words.NOW_US] = time.monotonic_ns() // 1000
            batch[words.OUT_BYTES], batch[words.OUT_SIZE] = self._out.ctypes.data, self._out.nbytes
            for word, row in zip((words.OUT_OFFSETS, words.OUT_LENGTHS, words.OUT_PORTS), self._results, strict=True):
                batch[word] = row.ctypes.data
            batch[words.OUT_CAPACITY] = self._capacity
            batch[words.TAKEN] = batch[words.FRAMES_OUT] = batch[words.BYTES_OUT] = 0
            address = batch.ctypes.data
            began = time.thread_time_ns()
            why = self._call(address)
            spent += time.thread_time_ns() - began
            while why != words.DONE:
                if why == words.EVENT:
                    self._executor.collect()
                results += int(batch[words.FRAMES_OUT])
                batch[words.FRAMES_OUT] = batch[words.BYTES_OUT] = 0
                began = time.thread_time_ns()
                why = self._call(address)
                spent += time.thread_time_ns() - began
            results += int(batch[words.FRAMES_OUT])
        return spent, results
