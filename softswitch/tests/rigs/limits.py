"""How long a test waits at most."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

LIMIT_S: Final = 600.0
"""Seconds for what comes by itself. Only a fault reaches them: a busy machine takes many times what an idle one
does."""


def wait_until(condition: Callable[[], object], message: str = "") -> None:
    """Return when the condition holds, which is evaluated every 10 ms. AssertionError if it does not within LIMIT_S."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, message
        time.sleep(0.01)
