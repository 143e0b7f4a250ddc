"""The threads that sum buckets of gradients during the rest of the backward pass."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

_READY = 2
"""Buckets that may be prepared and not done: one is sent, the next waits for it. More would only take memory."""

Prepare = Callable[[], Any]
"""Makes a bucket ready to be sent. Must not raise."""
Send = Callable[[Any], None]
"""Sums what its `Prepare` returned over the ranks. Must not raise."""


class BucketThreads:
    """Sums buckets in the order of `put`, so that every rank calls the same collectives in one order.

    Buckets are prepared on one thread and sent on another: while one is sent, the next is compressed.
    """

    def __init__(self) -> None:
        self._given: queue.Queue[tuple[Prepare, Send] | None] = queue.Queue()
        self._ready: queue.SimpleQueue[tuple[Any, Send] | None] = queue.SimpleQueue()
        self._places = threading.Semaphore(_READY)
        # Daemons, because the interpreter joins other threads before atexit has ended their collectives.
        self._threads = [
            threading.Thread(target=work, name=f"p4reduce-{name}", daemon=True)
            for name, work in (("compress", self._prepare), ("ddp", self._send))
        ]
        for thread in self._threads:
            thread.start()

    def put(self, prepare: Prepare, send: Send) -> None:
        """Prepare a bucket and send it, each after those before it."""
        self._given.put((prepare, send))

    @property
    def busy(self) -> bool:
        """Whether a bucket that was put in is not done yet."""
        return self._given.unfinished_tasks > 0

    def wait(self) -> None:
        """Return when everything put in so far is done."""
        self._given.join()

    def end(self, timeout_s: float | None = None) -> None:
        """End once everything put in is done; wait for that, for at most `timeout_s` seconds."""
        self._given.put(None)
        self._threads[-1].join(timeout_s)  # the last to end

    def _prepare(self) -> None:
        while (task := self._given.get()) is not None:
            prepare, send = task
            self._places.acquire()
            self._ready.put((prepare(), send))
            del task, prepare, send  # not to keep the bucket's tensors until the next one
        self._given.task_done()  # the end counts as given
        self._ready.put(None)

    def _send(self) -> None:
        while (task := self._ready.get()) is not None:
            prepared, send = task
            try:
                send(prepared)
            finally:
                del task, prepared, send
                self._places.release()
                self._given.task_done()
