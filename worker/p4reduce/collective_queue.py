"""One queue of collectives: one call at a time, in the order in which they came, each on the thread that suits it.

A call that finds nothing before it runs at once on its caller's thread. What is submitted while another runs waits for
a thread of the queue, which ends with the queue.

An exception anywhere, a KeyboardInterrupt too, leaves the queue in order. That takes locks of the interpreter itself: a
Condition is Python code, which an interrupt can leave half done.
"""

from __future__ import annotations

import os
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar, cast

from p4reduce.errors import CollectiveTimeoutError, ForkedProcessError
from p4reduce_runtime.threads import DaemonThread

T = TypeVar("T")


class CollectiveFuture(Generic[T]):
    """The future of a submitted call: its result or its error, once its turn is over."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call: Callable[[], T] | None = call
        self._value: T | None = None
        self._error: BaseException | None = None
        self._done = False
        self._process = os.getpid()
        self._gate = threading.Lock()  # an Event is Python code, which a small collective would notice
        self._gate.acquire()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    def done(self) -> bool:
        """Return whether it has ended."""
        return self._done

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return whether it has ended within `timeout_s`; None: wait until it has.

        Raises ForkedProcessError in a forked child if it has not ended at the fork.
        """
        if not self._done:
            _check_process(self._process)
            if not self._gate.acquire(timeout=-1 if timeout_s is None else min(timeout_s, threading.TIMEOUT_MAX)):
                return False
            self._gate.release()
        return True

    def result(self) -> T:
        """Wait until it has ended; return what the call returned, or raise what it raised."""
        self.wait()
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def exception(self) -> BaseException | None:
        """Return what the call raised; None if nothing, or before the end."""
        return self._error

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """Call `callback` at the end, on the thread of the call; at once if that has come. It must not raise."""
        with self._lock:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback()

    def run(self) -> None:
        """Make the call; for the queue."""
        try:
            self._value = cast(Callable[[], T], self._call)()
        except BaseException as error:
            self._error = error
        self._call = None  # what it refers to, as tensors, is not kept

    def finish(self) -> None:
        """Let those that wait go on; for the queue."""
        with self._lock:
            self._done = True
            callbacks, self._callbacks = self._callbacks, []
        self._gate.release()
        for callback in callbacks:
            callback()


class CollectiveQueue:
    """Runs the collectives of a communicator, and those of a process group around them, one after the other.

    A call within another, on the same thread, is part of it and runs at once. A forked child cannot use the queue.
    """

    def __init__(self, name: str = "p4reduce-collectives") -> None:
        """`name`: the thread's."""
        self._name = name
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._line: deque[_Turn] = deque()
        self._running_on = 0
        """The thread of the call that runs; 0: none."""
        self._wake: queue.SimpleQueue[CollectiveQueue | None] = queue.SimpleQueue()
        """Calls for the queue's thread: this queue when its first call is a submitted one, None when the queue is
        gone."""
        weakref.finalize(self, self._wake.put, None).atexit = False
        self._thread: threading.Thread | None = None

    def check_process(self) -> None:
        """Raise ForkedProcessError in a forked child: its frames would count as the parent's."""
        _check_process(self._process)

    def run(self, what: str, timeout_s: float, call: Callable[..., T], *arguments: Any) -> T:
        """Return what `call` returns, made on this thread when all calls before it have ended.

        Raises CollectiveTimeoutError, which says that `what` did not begin, after `timeout_s`.
        """
        self.check_process()
        thread = threading.get_ident()
        if self._running_on == thread:
            return call(*arguments)  # within another call
        turn = _Turn()
        try:
            try:
                if not self._wait(turn, timeout_s):
                    raise CollectiveTimeoutError(
                        f"{what} could not begin in {timeout_s:g} s: another collective of this process was still "
                        "running; nothing was sent"
                    )
                self._running_on = thread
                return call(*arguments)
            finally:
                self._end(turn)
        except BaseException:
            self._end(turn)  # once more, in case it was this that an interrupt cut short
            raise

    def submit(self, call: Callable[[], T], *, inline: bool = False) -> CollectiveFuture[T]:
        """Make `call` when all calls before it have ended; `inline`: on this thread if there are none."""
        future = CollectiveFuture(call)
        if inline:
            try:
                self.run("", 0.0, future.run)
            except CollectiveTimeoutError:
                pass
            else:
                future.finish()
                return future
        self.check_process()
        turn = _Turn(future)
        try:
            with self._lock:
                self._line.append(turn)
                if self._thread is None:
                    # A daemon, because the interpreter joins other threads before atexit has ended their collectives.
                    self._thread = DaemonThread(partial(_serve, self._wake), self._name)
                    self._thread.start()
                self._grant()
        except BaseException:  # an interrupt: the caller gets no future, so the call must not be made later
            with self._lock:
                if not turn.begun and turn in self._line:
                    self._line.remove(turn)
            raise
        return future

    def drain(self, timeout_s: float) -> bool:
        """Return whether all calls before this one have ended within `timeout_s`."""
        try:
            self.run("drain", timeout_s, lambda: None)
        except CollectiveTimeoutError:
            return False
        return True

    def _wait(self, turn: _Turn, timeout_s: float) -> bool:
        """Join the line; return whether the turn came in time."""
        with self._lock:
            self._line.append(turn)
            if self._line[0] is turn:
                return True
        return turn.gate.acquire(timeout=min(max(0.0, timeout_s), threading.TIMEOUT_MAX))

    def _end(self, turn: _Turn) -> None:
        """Leave the line, if not done yet, and let the first in it begin."""
        with self._lock:
            if turn in self._line:
                if turn is self._line[0]:
                    self._running_on = 0
                self._line.remove(turn)
            self._grant()

    def _grant(self) -> None:
        """Let the first in the line begin; more than once does no harm."""
        if self._line:
            first = self._line[0]
            if first.future is not None:
                self._wake.put(self)
            elif first.gate.locked():
                first.gate.release()

    def _run_submitted(self) -> None:
        """Make, on the queue's thread, the call that is the first in the line, if it was submitted."""
        with self._lock:
            turn = self._line[0] if self._line else None
            if turn is None or turn.future is None or turn.begun:
                return
            turn.begun = True
            self._running_on = threading.get_ident()
        turn.future.run()
        self._end(turn)
        turn.future.finish()


def _serve(wake: queue.SimpleQueue[CollectiveQueue | None]) -> None:
    """Run what was submitted, until the queue is gone. No time limit: a daemon that wakes at the end is an abort."""
    while (served := wake.get()) is not None:
        served._run_submitted()
        del served


class _Turn:
    """A place in the line: of a caller, or of a call that the queue's thread makes."""

    def __init__(self, future: CollectiveFuture[Any] | None = None) -> None:
        self.future = future
        self.begun = False
        """Whether the queue's thread has begun with `future`."""
        self.gate = threading.Lock()
        self.gate.acquire()


def _check_process(process: int) -> None:
    if os.getpid() != process:
        raise ForkedProcessError(
            f"this communicator is of process {process}, and this is process {os.getpid()}, forked from it: "
            'leave collectives to the parent, or start the child with multiprocessing\'s start method "spawn" and let '
            "it call p4reduce.join() as a rank of its own"
        )
