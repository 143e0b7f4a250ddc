"""On SIGTERM leave the job before the process ends, so that the other ranks get JobResetError at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final

LEAVE_S: Final = 1.0
"""Seconds by which the end of the process may be put off."""
_leave: Callable[[], None] | None = None
_forking = threading.local()


def on_sigterm(leave: Callable[[], None]) -> None:
    """Call `leave`, for at most `LEAVE_S`, before SIGTERM ends this process.

    Where the program has a handler of its own, or outside the main thread, nothing is changed. A forked child has the
    system's default, which ends it whatever it does.
    """
    global _leave
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        _leave = leave
        signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    # In a thread: what the signal interrupted may hold a lock that leaving needs.
    thread = threading.Thread(target=_leave, daemon=True)
    thread.start()
    thread.join(LEAVE_S)
    os.kill(os.getpid(), number)


def _before_fork() -> None:
    """Let a SIGTERM wait until the child has the default: the interpreter drops one that comes during the fork."""
    _forking.blocked = signal.getsignal(signal.SIGTERM) is _terminate and signal.SIGTERM not in signal.pthread_sigmask(
        signal.SIG_BLOCK, (signal.SIGTERM,)
    )


def _after_fork() -> None:
    if _forking.blocked:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))


def _after_fork_in_child() -> None:
    if signal.getsignal(signal.SIGTERM) is _terminate:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
