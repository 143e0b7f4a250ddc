"""A fair, reentrant lock that a native loop can release while it is idle, without a call of Python."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from p4reduce_runtime.records import Record, zeros


class LockState(Record):
    """The state of a lock that a native loop shares."""

    waiters: int
    """A number that is not 0 while a thread other than the native loop's waits for the lock or holds it."""
    idle: int
    """1 while the native loop does not need the lock."""
    requests: int
    """Number of requests to the native loop for the lock."""
    closed: int
    """1 while helpers are not to run frames."""


RequestLock = Callable[[NDArray[np.void]], bool]
"""Count a request, set `waiters` and return whether `idle` is set, sequentially consistent: `datapath.lock_kernels`."""


class FairLock:
    """A lock like `threading.RLock`, also for a Condition, that is granted in the order of the calls of `acquire`.

    The thread that holds it can run a native loop without releasing it. The loop sets `idle` before it waits for
    events, and clears it afterwards; then it checks the other fields of LockState, and returns to Python when there are
    waiters or were requests. So other threads get the lock at once while the loop is idle, and soon while it is not.
    """

    def __init__(self, threads: int = 1) -> None:
        self.shared: NDArray[np.void] = zeros(LockState, threads)
        """The LockState; `idle` of each further row is 0 while a helper of the native loop runs frames."""
        self.shared["idle"][1:] = self.shared["closed"] = 1
        self.open_helpers: Callable[[], None] = _nothing
        """A function, called when the native loop owns the lock again, that lets its helpers run frames."""
        self.close_helpers: Callable[[], None] = _nothing
        """A function, called when a thread owns the lock in Python, that returns when no helper runs frames."""
        self._request: RequestLock | None = None
        self._state = threading.Lock()
        self._owner: int | None = None
        self._depth = 0
        self._queue: deque[tuple[int, threading.Lock]] = deque()
        self._native_owner: int | None = None

    def begin_native(self, request: RequestLock | None) -> None:
        """Let other threads take the lock while the native loop that this thread is about to run is idle."""
        self._request = request
        with self._state:
            self._native_owner = self._owner
            self.shared["idle"][0] = 0
            self._publish_waiters()
            self.open_helpers()

    def end_native(self) -> None:
        """Acquire the lock again after the native loop; threads that wait for it come first."""
        with self._state:
            self._native_owner = None
            self.close_helpers()
            if self._owner == threading.get_ident():
                return
        self.acquire()

    def acquire(self) -> bool:
        """Wait until this thread holds the lock; it may hold it already."""
        me = threading.get_ident()
        if self._owner == me:
            self._depth += 1
            return True
        with self._state:
            if self._owner is None or self._is_idle():
                self._owner, self._depth = me, 1
                self.close_helpers()
                return True
            granted = threading.Lock()
            granted.acquire()
            self._queue.append((me, granted))
            self._publish_waiters()
        try:
            granted.acquire()
        except BaseException:  # such as KeyboardInterrupt
            self._cancel(me, granted)
            raise
        return True

    def release(self) -> None:
        """Release it once; after as many releases as acquisitions the thread that has waited longest gets it."""
        if self._owner != threading.get_ident():
            raise RuntimeError("this thread does not hold the lock")
        self._depth -= 1
        if self._depth == 0:
            with self._state:
                self._pass_on()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _is_idle(self) -> bool:
        """Return whether the native loop holds the lock, and will not continue before it is released."""
        if self._native_owner is None or self._owner != self._native_owner or self._request is None:
            return False
        return self._request(self.shared)

    def _pass_on(self) -> None:
        if self._queue:
            self._owner, granted = self._queue.popleft()
            self._depth = 1
            self._publish_waiters()
            granted.release()
        else:
            self._owner, self._depth = self._native_owner, 1
            self._publish_waiters()
            if self._native_owner is not None:
                self.open_helpers()

    def _cancel(self, me: int, granted: threading.Lock) -> None:
        with self._state:
            if (me, granted) in self._queue:
                self._queue.remove((me, granted))
                self._publish_waiters()
            else:
                self._pass_on()

    def _publish_waiters(self) -> None:
        others = self._native_owner is not None and self._owner != self._native_owner
        self.shared["waiters"] = len(self._queue) + others

    # what threading.Condition requires of a reentrant lock

    def _is_owned(self) -> bool:
        return self._owner == threading.get_ident()

    def _release_save(self) -> int:
        depth, self._depth = self._depth, 1
        self.release()
        return depth

    def _acquire_restore(self, depth: int) -> None:
        self.acquire()
        self._depth = depth


def _nothing() -> None:
    pass
