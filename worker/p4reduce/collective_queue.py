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


_process = os.getpid()
"""This process: to ask the system for it takes a call."""
_lock = threading.Lock()
"""The lock of all futures, held for some assignments only."""


def _begin_process() -> None:
    global _process, _lock
    _process, _lock = os.getpid(), threading.Lock()


os.register_at_fork(after_in_child=_begin_process)


class CollectiveFuture(Generic[T]):
    """The future of a submitted call: its result or its error, once its turn is over."""

    _value: T | None = None
    error: BaseException | None = None
    """What the call has raised."""
    has_ended = False
    _gate: threading.Lock | None = None
    """A lock that is held until the end, where somebody waits for that; an Event is Python code."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call: Callable[[], T] | None = call
        self._process = _process
        self._callbacks: list[Callable[[], None]] = []

    def done(self) -> bool:
        """Return whether it has ended."""
        return self.has_ended

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return whether it has ended within `timeout_s`; None: wait until it has.

        Raises ForkedProcessError in a forked child if it has not ended at the fork.
        """
        if not self.has_ended:
            _check_process(self._process)
            with _lock:
                if self._gate is None and not self.has_ended:
                    self._gate = threading.Lock()
                    self._gate.acquire()
            if self._gate is not None:
                if not self._gate.acquire(timeout=-1 if timeout_s is None else min(timeout_s, threading.TIMEOUT_MAX)):
                    return False
                self._gate.release()
        return True

    def result(self) -> T:
        """Wait until it has ended; return what the call returned, or raise what it raised."""
        self.wait()
        if self.error is not None:
            raise self.error
        return cast(T, self._value)

    def exception(self) -> BaseException | None:
        """Return what the call raised; None if nothing, or before the end."""
        return self.error

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """Call `callback` at the end, on the thread of the call; at once if that has come. It must not raise."""
        with _lock:
            if not self.has_ended:
                self._callbacks.append(callback)
                return
        callback()

    def run(self) -> None:
        """Make the call; for the queue."""
        call, self._call = self._call, None  # what it refers to, as tensors, is not kept
        assert call is not None
        try:
            self._value = call()
        except BaseException as error:
            self.error = error

    def finish(self) -> None:
        """Let those that wait go on; for the queue."""
        with _lock:
            self.has_ended = True
            callbacks, self._callbacks = self._callbacks, []
        if self._gate is not None:
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
        self._process = _process
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
        if self._process != _process:
            _check_process(self._process)

    def run(self, what: str, timeout_s: float, call: Callable[..., T], *arguments: Any) -> T:
        """Return what `call` returns, made in this thread's turn."""
        with CallersTurn(self, what, timeout_s):
            return call(*arguments)

    def submit(self, call: Callable[[], T], *, inline: bool = False) -> CollectiveFuture[T]:
        """Make `call` when all calls before it have ended; `inline`: on this thread if there are none."""
        future = CollectiveFuture(call)
        if inline:
            try:
                with CallersTurn(self, "", 0.0):
                    future.run()
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

    def _end(self, turn: _Turn) -> None:
        """Leave the line, if not done yet, and let the first in it begin."""
        with self._lock:
            if turn in self._line:
                if turn is self._line[0]:
                    self._running_on = 0
                self._line.remove(turn)
            if self._line:
                self._grant()

    def _grant(self) -> None:
        """Let the first in the line begin; more than once does no harm."""
        if self._line:
            first = self._line[0]
            if first.future is not None:
                self._wake.put(self)
            elif first.gate is not None and first.gate.locked():
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

    future: CollectiveFuture[Any] | None = None
    begun = False
    """Whether the queue's thread has begun with `future`."""
    gate: threading.Lock | None = None
    """The lock of a caller that waits for its turn, held until then."""

    def __init__(self, future: CollectiveFuture[Any] | None = None) -> None:
        self.future = future


class CallersTurn(_Turn):
    """The turn of a call on its caller's thread: the block within it runs when all calls before it have ended.

    Raises CollectiveTimeoutError, which says that `what` did not begin, after `timeout_s`.
    """

    def __init__(self, queue: CollectiveQueue, what: str, timeout_s: float) -> None:
        self._queue, self._what, self._timeout_s = queue, what, timeout_s
        self._within = False
        """Whether it is a call within another one."""

    def __enter__(self) -> None:
        queue, thread = self._queue, threading.get_ident()
        if queue._process != _process:
            _check_process(queue._process)
        if queue._running_on == thread:
            self._within = True
            return
        try:
            with queue._lock:
                if queue._line:
                    self.gate = threading.Lock()
                    self.gate.acquire()
                queue._line.append(self)
            if self.gate is not None:
                self._wait(self.gate)
            queue._running_on = thread
        except BaseException:
            try:
                queue._end(self)
            except BaseException:
                queue._end(self)  # once more, in case it was this that an interrupt cut short
                raise
            raise

    def __exit__(self, *error: object) -> None:
        queue = self._queue
        if not self._within:
            try:
                with queue._lock:
                    queue._running_on = 0
                    queue._line.popleft()  # which it is the first of
                    if queue._line:
                        queue._grant()
            except BaseException:  # an interrupt cut this short
                queue._end(self)
                raise

    def _wait(self, gate: threading.Lock) -> None:
        if not gate.acquire(timeout=min(max(0.0, self._timeout_s), threading.TIMEOUT_MAX)):
            raise CollectiveTimeoutError(
                f"{self._what} could not begin in {self._timeout_s:g} s: another collective of this process was still "
                "running; nothing was sent"
            )


def _check_process(process: int) -> None:
    if os.getpid() != process:
        raise ForkedProcessError(
            f"this communicator is of process {process}, and this is process {os.getpid()}, forked from it: "
            'leave collectives to the parent, or start the child with multiprocessing\'s start method "spawn" and let '
            "it call p4reduce.join() as a rank of its own"
        )
