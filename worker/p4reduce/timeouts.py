"""How long a call waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Final, SupportsFloat

DEFAULT_TIMEOUT_S: Final = 1800.0
"""Seconds that torch.distributed gives a process group of gloo (`default_pg_timeout`): a rank that saves a checkpoint
for some minutes must not end the job. Long before that the log names the missing ranks (paths/waits.py), and the end of
a rank, of the switch or of the controller is a JobResetError within seconds."""

_LONGEST_PAUSE_S: Final = 0.05

Timeout = float | timedelta
"""Seconds, or a timedelta as in torch.distributed."""


def timeout_seconds(timeout: object, what: str = "timeout_s") -> float:
    """Return a timeout in seconds. `timeout` is a number of seconds, or a timedelta as torch.distributed takes it.

    Raises ValueError for zero, a negative time, NaN, infinity and anything else that a lock cannot wait.
    """
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    # in this order: to look for a protocol takes microseconds
    if not (isinstance(seconds, (float, int, SupportsFloat)) and 0 < float(seconds) <= threading.TIMEOUT_MAX):
        raise ValueError(f"{what} is {timeout}; give a time to wait in seconds")
    return float(seconds)


def tries(timeout_s: float) -> Iterator[None]:
    """Yield until the time is over, at once and then after pauses that grow."""
    end, pause_s = time.monotonic() + timeout_s, 0.0005
    yield
    while time.monotonic() < end:
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        yield
