"""The thread on which buckets of gradients are summed, while the rest of the backward pass goes on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable


class BucketThread:
    """Runs what it is given in the order it was given, so that every rank calls the same collectives in one order."""

    def __init__(self) -> None:
        self._tasks: queue.Queue[Callable[[], None] | None] = queue.Queue()
        # A daemon, because the interpreter joins other threads before atexit has ended their collectives.
        self._thread = threading.Thread(target=self._work, name="p4reduce-ddp", daemon=True)
        self._thread.start()

    def put(self, task: Callable[[], None]) -> None:
        """Run `task`, which must not raise, after those before it."""
        self._tasks.put(task)

    def wait(self) -> None:
        """Return when everything put in so far is done."""
        self._tasks.join()

    def end(self, timeout_s: float | None = None) -> None:
        """End once everything put in is done; wait for that, for at most `timeout_s` seconds."""
        self._tasks.put(None)
        self._thread.join(timeout_s)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                task()
            finally:
                del task  # not to keep the bucket's tensors until the next one
                self._tasks.task_done()
