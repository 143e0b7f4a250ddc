"""A FIFO lock: granted in the order of the requests."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Turns:
    """Collectives have to start in call order; a plain lock promises no order.

    An exception anywhere, a KeyboardInterrupt too, leaves the queue in order. That takes locks of the
    interpreter itself: a Condition is Python code, which an interrupt can leave half done.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line: deque[_Turn] = deque()

    def hold(self, timeout_s: float, body: Callable[[bool], T]) -> T:
        """Return what `body` returns. It runs when all earlier calls have ended, or after `timeout_s`.

        Its argument is whether it runs in time."""
        turn = _Turn()
        try:
            try:
                return body(self._wait(turn, timeout_s))
            finally:
                self._give_back(turn)
        except BaseException:
            self._give_back(turn)  # once more, in case it was this that an interrupt cut short
            raise

    def _wait(self, turn: _Turn, timeout_s: float) -> bool:
        with self._lock:
            self._line.append(turn)
            if self._line[0] is turn:
                return True
        return turn.wait(timeout_s)

    def _give_back(self, turn: _Turn) -> None:
        """Leave the queue, if not done yet, and grant the lock to the first caller in it."""
        with self._lock:
            if turn in self._line:
                self._line.remove(turn)
            if self._line:
                self._line[0].open()


class _Turn:
    """One caller in the queue."""

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._gate.acquire()

    def wait(self, timeout_s: float) -> bool:
        return self._gate.acquire(timeout=min(max(0.0, timeout_s), threading.TIMEOUT_MAX))

    def open(self) -> None:
        if self._gate.locked():
            self._gate.release()
