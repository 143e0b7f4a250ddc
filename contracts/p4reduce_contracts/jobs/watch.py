"""A member's watch: a call that stays open while the member's process runs, and delivers a reset at once.

While it is open, the controller does not expect heartbeats. gRPC's own threads answer the controller's pings, so that
holds too while the interpreter is busy in one long call; and when the process ends, however it does, its connection
ends with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import grpc

from p4reduce_contracts.jobs import jobs_pb2
from p4reduce_runtime.streams import received
from p4reduce_runtime.threads import DaemonThread

_AGAIN_S: Final = 0.05
"""Seconds from one try to the next, well below what the controller waits for a member whose connection broke."""
_CLOSE_S: Final = 1.0


class Watch:
    """Keeps the call open from a thread of its own, and opens it again when it breaks, until a reset or `close`.

    The call holds its connection, also of a closed client, until its events are read to the end: gRPC does not read on
    after `cancel`, but does where the controller, or the end of the channel, ends the call.
    """

    def __init__(self, call: Callable[[], Any], on_reset: Callable[[str], None] | None = None) -> None:
        """`call` opens the stream of events; `on_reset` is called once with the reason, from the thread."""
        self._call = call
        self._on_reset = on_reset
        self._reason: str | None = None
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._stream: Any = None
        self._thread = DaemonThread(self._run, "p4reduce-watch")
        self._thread.start()

    def attach(self, on_reset: Callable[[str], None]) -> None:
        """Call `on_reset` with the reason of the reset: now, if there was one already."""
        with self._lock:
            self._on_reset, reason = on_reset, self._reason
        if reason is not None:
            on_reset(reason)

    def close(self) -> None:
        """Wait for the end of the call, and cancel it after `_CLOSE_S`: leave the job or close the client before."""
        self._closed.set()
        if self._thread is not threading.current_thread():
            self._thread.join(_CLOSE_S)
        with self._lock:
            if self._stream is not None:
                self._stream.cancel()

    def _run(self) -> None:
        while self._reason is None and (events := self._open()) is not None:
            try:
                for event in events:
                    if event.reset:
                        with self._lock:
                            self._reason, on_reset = event.reason, self._on_reset
                        if on_reset is not None:
                            on_reset(event.reason)
            except grpc.RpcError as error:
                if error.code() in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.PERMISSION_DENIED):
                    return  # heartbeats alone have to do
            finally:
                with self._lock:
                    self._stream = None
            self._closed.wait(_AGAIN_S)

    def _open(self) -> Iterator[jobs_pb2.WatchEvent] | None:
        """Open the call and return its events; None if this watch or its channel is closed."""
        with self._lock:
            if self._closed.is_set():
                return None
            try:
                self._stream = self._call()
            except ValueError:  # the channel is closed
                return None
            return received(self._stream)
