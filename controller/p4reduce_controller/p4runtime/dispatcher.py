"""A thread that runs callbacks one at a time, so that they may use the client they come from."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)


class Dispatcher:
    """Runs what is `put`, in order. Droppable work beyond `limit` waiting items is dropped and counted in `dropped`."""

    def __init__(self, limit: int = 10_000) -> None:
        self.dropped = 0
        self._limit = limit
        self._work: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread unless it runs."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="p4runtime-callbacks", daemon=True)
            self._thread.start()

    def put(self, work: Callable[[], object], *, droppable: bool = False) -> None:
        """Queues a call."""
        if droppable and self._work.qsize() >= self._limit:
            self.dropped += 1
            return
        self._work.put(work)

    def stop(self, timeout_s: float) -> None:
        """Lets the waiting calls run, then ends the thread; waits at most `timeout_s` (not at all from a callback)."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._work.put(None)
            if thread is not threading.current_thread():
                thread.join(timeout_s)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except Exception:  # a callback's error must not end the ones after it
                _log.exception("a callback of the P4Runtime client failed")
