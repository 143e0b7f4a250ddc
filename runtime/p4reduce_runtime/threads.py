"""Daemon threads that an unexpected error does not end without a word."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from p4reduce_runtime.logs import LOG_EVERY_S

_log = logging.getLogger(__name__)

_AGAIN_S: Final = 0.5
"""Seconds from an error to the next call."""


class DaemonThread(threading.Thread):
    """A daemon that calls `work` until that returns.

    When `work` raises, the error is logged, and `failed` called with it; without `failed`, `work` is called again.
    """

    def __init__(
        self, work: Callable[[], object], name: str, *, failed: Callable[[Exception], object] | None = None
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._work, self._failed = work, failed

    def run(self) -> None:
        """Make the calls; for the thread."""
        work, failed, log_at = self._work, self._failed, 0.0
        del self._work, self._failed  # what they refer to need not last as long as this object
        while True:
            try:
                work()
                return
            except Exception as error:
                if time.monotonic() >= log_at:
                    log_at = time.monotonic() + LOG_EVERY_S
                    _log.exception("the thread %s failed", self.name)
                if failed is not None:
                    failed(error)
                    return
            time.sleep(_AGAIN_S)
