"""A lock that its holder can see others wait for, given in the order in which they asked."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import numpy as np


class FairLock:
    """Like `threading.RLock`, a Condition's too; whoever asks gets it before its holder gets it again.

    A native loop that holds it looks at `wanted`, the number of threads that wait, and goes back to Python when it is
    not 0. `on_wait` is called when a thread begins to wait, to end the loop's own waiting.
    """

    def __init__(self, on_wait: Callable[[], None] = lambda: None) -> None:
        self.wanted = np.zeros(1, np.int64)
        self._on_wait = on_wait
        self._state = threading.Lock()
        self._owner: int | None = None
        self._depth = 0
        self._queue: deque[tuple[int, threading.Lock]] = deque()

    def acquire(self) -> bool:
        """Wait until this thread has the lock; it may have it already."""
        me = threading.get_ident()
        if self._owner == me:
            self._depth += 1
            return True
        with self._state:
            if self._owner is None:
                self._owner, self._depth = me, 1
                return True
            turn = threading.Lock()
            turn.acquire()
            self._queue.append((me, turn))
            self.wanted[0] = len(self._queue)
        self._on_wait()
        try:
            turn.acquire()
        except BaseException:  # such as KeyboardInterrupt: nobody is here to take the turn
            self._give_up(me, turn)
            raise
        return True

    def release(self) -> None:
        """Give it back as often as it was acquired; then it is at once that of the thread that waits for longest."""
        if self._owner != threading.get_ident():
            raise RuntimeError("this thread does not have the lock")
        self._depth -= 1
        if self._depth == 0:
            with self._state:
                self._hand_over()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _hand_over(self) -> None:
        self._owner, turn = self._queue.popleft() if self._queue else (None, None)
        self.wanted[0] = len(self._queue)
        if turn is not None:
            self._depth = 1
            turn.release()

    def _give_up(self, me: int, turn: threading.Lock) -> None:
        with self._state:
            if (me, turn) in self._queue:
                self._queue.remove((me, turn))
                self.wanted[0] = len(self._queue)
            else:
                self._hand_over()

    # what threading.Condition asks of a lock that can be acquired more than once

    def _is_owned(self) -> bool:
        return self._owner == threading.get_ident()

    def _release_save(self) -> int:
        depth, self._depth = self._depth, 1
        self.release()
        return depth

    def _acquire_restore(self, depth: int) -> None:
        self.acquire()
        self._depth = depth
