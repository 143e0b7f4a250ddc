"""A lock that is given in the order in which it was asked for, and that a native loop need not hold while it waits."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

WANTED: Final = 0
"""Not 0 while another thread than the loop's waits for the lock, or has it."""
IDLE: Final = 1
"""1 while the loop does without the lock."""
CLAIMS: Final = 2
"""How often it was claimed."""

Claim = Callable[[NDArray[np.int64]], bool]
"""Count a claim, set WANTED and return whether IDLE is set, in this order for all processors: `pump.lock_kernels`."""


class FairLock:
    """Like `threading.RLock`, a Condition's too; whoever asks gets it before its holder gets it again.

    The holder can lend it to its native loop. The loop sets IDLE before it waits for something to do, and clears it
    afterwards. Each time it looks at the other words then, and goes back to Python when the lock is wanted or was
    claimed. So the lock is there for others while the loop is idle, and soon when it is not.
    """

    def __init__(self) -> None:
        self.words = np.zeros(3, np.int64)
        self._claim: Claim | None = None
        self._state = threading.Lock()
        self._owner: int | None = None
        self._depth = 0
        self._queue: deque[tuple[int, threading.Lock]] = deque()
        self._lender: int | None = None

    def lend(self, claim: Claim) -> None:
        """Let the native loop that this thread begins now do without the lock while it is idle."""
        self._claim = claim
        with self._state:
            self._lender = self._owner
            self.words[IDLE] = 0
            self._note_wanted()

    def take_back(self) -> None:
        """After the loop: this thread has the lock again, once those before it have had it."""
        with self._state:
            self._lender = None
            if self._owner == threading.get_ident():
                return
        self.acquire()

    def acquire(self) -> bool:
        """Wait until this thread has the lock; it may have it already."""
        me = threading.get_ident()
        if self._owner == me:
            self._depth += 1
            return True
        with self._state:
            if self._owner is None or self._is_idle():
                self._owner, self._depth = me, 1
                return True
            turn = threading.Lock()
            turn.acquire()
            self._queue.append((me, turn))
            self._note_wanted()
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

    def _is_idle(self) -> bool:
        """Whether the lock is with the loop, and the loop will not go on before it is given back."""
        if self._lender is None or self._owner != self._lender or self._claim is None:
            return False
        return self._claim(self.words)

    def _hand_over(self) -> None:
        if self._queue:
            self._owner, turn = self._queue.popleft()
            self._depth = 1
            self._note_wanted()
            turn.release()
        else:
            self._owner, self._depth = self._lender, 1
            self._note_wanted()

    def _give_up(self, me: int, turn: threading.Lock) -> None:
        with self._state:
            if (me, turn) in self._queue:
                self._queue.remove((me, turn))
                self._note_wanted()
            else:
                self._hand_over()

    def _note_wanted(self) -> None:
        others = self._lender is not None and self._owner != self._lender
        self.words[WANTED] = len(self._queue) + others

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
