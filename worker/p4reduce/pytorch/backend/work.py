"""What a collective returns before it is done, and the thread that runs collectives in the order of their calls."""

from __future__ import annotations

import functools
import os
import queue
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch._C._distributed_c10d import Work

from p4reduce.pytorch.staging import OnHost

if TYPE_CHECKING:
    Tensors = list[torch.Tensor]


class _Callbacks:
    """Runs callbacks of futures, each at once: one may wait for a collective that another one calls, as PowerSGD's do.

    Its threads are daemons: those of a ThreadPoolExecutor are waited for at the interpreter's end, before anything
    ends the collective that a callback waits for.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)

    def submit(self, call: Callable[[], None]) -> None:
        self._calls.put(call)
        if not self._idle.acquire(blocking=False):
            threading.Thread(target=self._run, name="p4reduce-callback", daemon=True).start()

    def _run(self) -> None:
        while True:
            self._calls.get()()
            self._idle.release()


@functools.cache
def _callbacks(_process: int) -> _Callbacks:
    return _Callbacks()  # a forked process has none of its parent's threads


class CollectiveWork(Work):
    """One collective. `wait` raises what it raised; the future of `get_future` then has an error too."""

    def __init__(self, name: str, outputs: Tensors, staged: OnHost) -> None:
        """`outputs`: what the future's value is once the collective is done; `staged`: how they are given back."""
        super().__init__()
        self._name = name
        self._outputs = outputs
        self._staged = staged
        self._error: BaseException | None = None
        self._done = False
        self._gate = threading.Lock()  # an Event is Python code, which a small collective would notice
        self._gate.acquire()
        self._lock = threading.Lock()
        self._source: Any = None
        self._future: Any = None

    def finish(self, error: BaseException | None = None) -> None:
        """Mark it done, then complete the future, on another thread: a callback may wait for the next collective."""
        with self._lock:
            self._error = error
            self._done = True
            source = self._source
        self._gate.release()
        if source is not None:
            _callbacks(os.getpid()).submit(self._complete)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Return True when it is done, or raise its error; RuntimeError after `timeout` (0: its own time limit).

        Of tensors on a device the copies back have begun, and the caller's stream waits for them.
        """
        if not self._done:
            seconds = timeout.total_seconds()
            if not self._gate.acquire(timeout=min(seconds, threading.TIMEOUT_MAX) if seconds > 0 else -1):
                raise RuntimeError(f"{self._name} timed out: wait({seconds:g} s) ended before it was done")
            self._gate.release()
        if self._error is not None:
            raise self._error
        self._staged.wait()
        return True

    def get_future(self) -> Any:
        """Return a torch.futures.Future of the output tensors."""
        with self._lock:
            if self._future is None:
                self._source = self._staged.future()
                self._future = self._source.then(self._value)  # an exception in a callback is an error to C++ too
                if self._done:
                    _callbacks(os.getpid()).submit(self._complete)
            return self._future

    def _complete(self) -> None:
        try:
            self._staged.complete(self._source, self._outputs if self._error is None else [])
        except BaseException as error:
            self._error = self._error or error
            self._source.set_exception(error)

    def _value(self, _source: Any) -> Tensors:
        if self._error is not None:
            raise self._error
        return self._outputs

    def result(self) -> Tensors:
        return self._outputs

    def is_completed(self) -> bool:
        return self._done

    def is_success(self) -> bool:
        return self._done and self._error is None

    def exception(self) -> BaseException | None:
        return self._error

    def synchronize(self) -> None:
        self.wait()


class CollectiveThread:
    """Runs collectives one after the other, in the order of their calls."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[tuple[CollectiveWork, Callable[[], None]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._running = threading.Lock()
        self._unfinished = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: CollectiveWork, collective: Callable[[], None], *, asynchronous: bool) -> CollectiveWork:
        """Run `collective` when all before it have ended: in this thread if there are none and the caller waits."""
        with self._lock:
            alone = not self._unfinished
            self._unfinished += 1
            if asynchronous or not alone:
                self._calls.put((work, collective))
                return work
        self._finish(work, collective)
        return work

    def close(self, timeout_s: float) -> None:
        """End the thread after what was submitted, waiting `timeout_s` at most."""
        self._calls.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            self._finish(*call)

    def _finish(self, work: CollectiveWork, collective: Callable[[], None]) -> None:
        error: BaseException | None = None
        try:
            with self._running:
                collective()
        except BaseException as raised:
            error = raised
        with self._lock:
            self._unfinished -= 1
        work.finish(error)
