"""On SIGTERM leave the job before the process ends, so that the other ranks get JobResetError at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final

LEAVE_S: Final = 1.0
"""How long the end of the process may be put off."""


def on_sigterm(leave: Callable[[], None]) -> None:
    """Have `leave` called, for at most `LEAVE_S`, before SIGTERM ends this process.

    Where the program has a handler of its own, or outside the main thread, nothing is changed. A forked child just
    ends.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        return
    process = os.getpid()

    def terminate(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        if os.getpid() == process:
            # In a thread: what the signal interrupted may hold a lock that leaving needs.
            thread = threading.Thread(target=leave, daemon=True)
            thread.start()
            thread.join(LEAVE_S)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, terminate)
