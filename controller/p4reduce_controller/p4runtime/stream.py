"""One P4Runtime stream: arbitration, packets, digests. A client makes a new one for each connection."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import grpc

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime.errors import NotPrimaryError, P4RuntimeError, SwitchUnreachableError
from p4reduce_runtime.streams import received
from p4reduce_runtime.threads import DaemonThread

_OK, _NOT_FOUND, _ALREADY_EXISTS = 0, 5, 6  # google.rpc.Code

ElectionId = tuple[int, int]
"""The high and the low 64 bits."""
LARGEST_ID: Final[ElectionId] = ((1 << 64) - 1, (1 << 64) - 1)


def first_id() -> ElectionId:
    """Return an id to begin with: the time, so that a restarted controller exceeds its own earlier id."""
    return 0, time.time_ns()


def id_above(taken: ElectionId) -> ElectionId:
    """Return the next larger id; for the largest, itself: a controller may take it again once its holder has left."""
    if taken >= LARGEST_ID:
        return LARGEST_ID
    number = (taken[0] << 64 | taken[1]) + 1
    return number >> 64, number & (1 << 64) - 1


class Stream:
    """A running StreamChannel call with a thread that reads it.

    All callbacks come from that thread: `on_message` with every message but arbitration, `on_primary` with whether this
    controller has become or ceased to be primary, `on_end` with this stream and why it ended (not after `close`).
    """

    def __init__(
        self,
        call: grpc.StreamStreamMultiCallable[p4r.StreamMessageRequest, p4r.StreamMessageResponse],
        device_id: int,
        election_id: tuple[int, int],
        *,
        on_message: Callable[[p4r.StreamMessageResponse], None],
        on_primary: Callable[[bool], None],
        on_end: Callable[[Stream, P4RuntimeError], None],
    ) -> None:
        self._device_id = device_id
        self._election_id = election_id
        self._on_message, self._on_primary, self._on_end = on_message, on_primary, on_end
        self._outgoing: queue.SimpleQueue[p4r.StreamMessageRequest | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._arbitration: p4r.MasterArbitrationUpdate | None = None
        self._ended: P4RuntimeError | None = None
        self._closing = False
        # a future of the channel's readiness would poll its state, and closing waits up to 0.2 s for such a poll
        self._call: Any = call(iter(self._outgoing.get, None), wait_for_ready=True)
        messages = received(self._call)
        self._thread = DaemonThread(partial(self._read, messages), "p4runtime-stream", failed=self._fail)
        self._thread.start()

    @property
    def is_primary(self) -> bool:
        """Whether this controller is primary by the switch's last arbitration message."""
        with self._changed:
            return self._ended is None and self._arbitration is not None and self._arbitration.status.code == _OK

    @property
    def arbitrated(self) -> bool:
        """Whether the switch has answered an arbitration request on this stream."""
        with self._changed:
            return self._arbitration is not None

    @property
    def largest(self) -> tuple[int, int]:
        """The largest election id that the switch has sent; (0, 0) before the first."""
        with self._changed:
            if self._arbitration is None:
                return 0, 0
            return self._arbitration.election_id.high, self._arbitration.election_id.low

    @property
    def cannot_be_outbid(self) -> bool:
        """Whether another controller is primary with the largest election id there is."""
        with self._changed:
            if self._arbitration is None or self._arbitration.status.code != _ALREADY_EXISTS:
                return False
            return self.largest == LARGEST_ID

    def arbitrate(self, timeout_s: float, election_id: tuple[int, int] | None = None) -> None:
        """Request mastership and wait for the answer, which sets `is_primary`; `election_id` is another one.

        Raises TimeoutError when there is none in time, and ends the stream then; NotPrimaryError when the switch ends
        it over the election id, SwitchUnreachableError when it breaks.
        """
        self._election_id = election_id or self._election_id
        request = p4r.StreamMessageRequest()
        request.arbitration.device_id = self._device_id
        request.arbitration.election_id.high, request.arbitration.election_id.low = self._election_id
        with self._changed:
            self._arbitration = None
            self._outgoing.put(request)
            deadline = time.monotonic() + timeout_s
            while self._arbitration is None and self._ended is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    self._cancel()
                    raise TimeoutError(f"the switch did not answer the arbitration request within {timeout_s} s")
                self._changed.wait(left)
            if self._ended is not None:
                raise self._ended

    def why_not_primary(self) -> str:
        """The text of the switch's last arbitration message, for a controller that is not primary."""
        with self._changed:
            if self._arbitration is None:
                return "the switch has not answered yet"
            largest = self.largest
            if self.cannot_be_outbid:
                return (
                    f"another controller is primary with the largest election id there is, {largest}: end it or "
                    "restart the switch, and restrict who can reach its P4Runtime port (docs/security.md)"
                )
            if self._arbitration.status.code == _NOT_FOUND:
                return f"the last primary had election id {largest}, so only one at least as large can follow"
            return f"another controller is primary, with election id {largest}"

    def send(self, request: p4r.StreamMessageRequest) -> None:
        """Queues a message; SwitchUnreachableError when the stream has ended."""
        with self._changed:
            if self._ended is not None:
                raise SwitchUnreachableError(f"the stream to the switch has ended: {self._ended}")
            self._outgoing.put(request)

    def close(self, timeout_s: float = 5.0) -> None:
        """Ends the stream after what was queued for it."""
        with self._changed:
            self._closing = True
        self._outgoing.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                self._cancel()
                self._thread.join(timeout_s)

    def _cancel(self) -> None:
        call = self._call
        if call is not None:
            call.cancel()

    def _read(self, messages: Iterator[p4r.StreamMessageResponse]) -> None:
        reason: P4RuntimeError = SwitchUnreachableError("the switch ended the stream")
        try:
            for message in messages:
                if message.WhichOneof("update") == "arbitration":
                    self._arbitrated(message.arbitration)
                else:
                    self._on_message(message)
        except grpc.RpcError as error:
            reason = _stream_error(error)
        self._end(reason)

    def _fail(self, error: Exception) -> None:
        self._cancel()
        self._end(SwitchUnreachableError(f"the controller failed over a message of the switch: {error!r}"))

    def _end(self, reason: P4RuntimeError) -> None:
        with self._changed:
            self._ended = reason
            self._call = None  # a caller may keep this stream, which must not keep the call alive: see `received`
            closing = self._closing
            self._changed.notify_all()
        self._outgoing.put(None)
        if not closing:
            self._on_end(self, reason)

    def _arbitrated(self, arbitration: p4r.MasterArbitrationUpdate) -> None:
        with self._changed:
            before = self._arbitration
            self._arbitration = arbitration
            self._changed.notify_all()
        primary = arbitration.status.code == _OK
        if before is not None and primary != (before.status.code == _OK):
            self._on_primary(primary)


def _stream_error(error: grpc.RpcError) -> P4RuntimeError:
    """The error of a stream's end. BMv2 answers a used election id by ending it with INVALID_ARGUMENT."""
    code, text = error.code().name, error.details() or ""
    if code == "INVALID_ARGUMENT" and "lection" in text:
        return NotPrimaryError(f"the switch refused this election id: {text}; is another controller running?")
    return SwitchUnreachableError(f"the stream to the switch broke ({code}: {text})")
