"""What a collective returns before it is done."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import queue
import threading
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.distributed import Work

from p4reduce.collective_queue import CollectiveFuture, CollectiveQueue
from p4reduce.errors import ForkedProcessError
from p4reduce.pytorch.backend.contiguous import release
from p4reduce.pytorch.staging import OnHost
from p4reduce_runtime.threads import DaemonThread

if TYPE_CHECKING:
    Tensors = list[torch.Tensor]


_END_S = 2.0
"""Seconds that the end of the interpreter waits for callbacks, for what the queues run, and for gloo."""


class _Callbacks:
    """Runs callbacks of futures, each at once: one may wait for a collective that another one calls, as PowerSGD's do.

    Its threads are daemons: those of a ThreadPoolExecutor are waited for at the interpreter's end, before anything
    ends the collective that a callback waits for.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._running = 0
        self._ended = threading.Condition()

    def submit(self, call: Callable[[], None]) -> None:
        with self._ended:
            self._running += 1
        self._calls.put(call)
        if not self._idle.acquire(blocking=False):
            DaemonThread(self._run, "p4reduce-callback").start()

    def _run(self) -> None:
        while True:
            try:
                self._calls.get()()
            finally:
                self._idle.release()
                with self._ended:
                    self._running -= 1
                    self._ended.notify_all()

    def wait(self, timeout_s: float) -> None:
        """Wait until no callback runs, for so long at most."""
        with self._ended:
            self._ended.wait_for(lambda: not self._running, timeout_s)


@functools.cache
def _callbacks(_process: int) -> _Callbacks:
    return _Callbacks()  # a forked process has none of its parent's threads


queues: Final[weakref.WeakSet[CollectiveQueue]] = weakref.WeakSet()
"""The queues of process groups."""


def _wait_for_threads() -> None:
    """Wait for what the end of the communicators has interrupted on other threads.

    The interpreter ends a thread that wakes later in the middle of torch's C++ code, which aborts the process.
    """
    for queue_of_group in list(queues):
        with contextlib.suppress(ForkedProcessError):
            queue_of_group.drain(_END_S)
    _callbacks(os.getpid()).wait(_END_S)
    release(_END_S)


_future_lock = threading.Lock()
"""The lock of the making of futures."""
atexit.register(_wait_for_threads)  # before any communicator is there, so that it runs after they are closed


class CollectiveWork(Work):
    """One collective. `wait` raises what it raised; the future of `get_future` then has an error too."""

    _source: Any = None
    _future: Any = None
    _not_completed: BaseException | None = None

    def __init__(self, name: str, outputs: Tensors, staged: OnHost, done: CollectiveFuture[Any]) -> None:
        """`outputs`: what the future's value is once `done` is; `staged`: how they are given back."""
        super().__init__()
        self._name = name
        self._outputs = outputs
        self._staged = staged
        self._done = done

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Return True when it is done, or raise its error; RuntimeError after `timeout` (0: its own time limit).

        Of tensors on a device the copies back have begun, and the caller's stream waits for them.
        """
        done = self._done
        if not done.has_ended:
            seconds = timeout.total_seconds()
            if not done.wait(seconds if seconds > 0 else None):
                raise RuntimeError(f"{self._name} timed out: wait({seconds:g} s) ended before it was done")
        if done.error is not None or self._not_completed is not None:
            raise done.error or self._not_completed  # type: ignore[misc]
        if self._staged.is_copy:
            self._staged.wait()
        return True

    def get_future(self) -> Any:
        """Return a torch.futures.Future of the output tensors."""
        with _future_lock:
            if self._future is None:
                self._source = self._staged.future()
                self._future = self._source.then(self._value)  # an exception in a callback is an error to C++ too
                # on another thread: a callback may wait for the next collective
                self._done.add_done_callback(lambda: _callbacks(os.getpid()).submit(self._complete))
            return self._future

    def _complete(self) -> None:
        try:
            self._staged.complete(self._source, self._outputs if self._done.exception() is None else [])
        except BaseException as error:
            self._not_completed = error
            self._source.set_exception(error)

    def _value(self, _source: Any) -> Tensors:
        if (error := self.exception()) is not None:
            raise error
        return self._outputs

    def result(self) -> Tensors:
        return self._outputs

    def is_completed(self) -> bool:
        return self._done.done()

    def is_success(self) -> bool:
        return self._done.done() and self.exception() is None

    def exception(self) -> BaseException | None:
        return self._done.exception() or self._not_completed

    def synchronize(self) -> None:
        self.wait()
