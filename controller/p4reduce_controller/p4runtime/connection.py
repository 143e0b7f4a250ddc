"""The gRPC channel and the stream to one switch: opening, arbitration, loss, opening again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from p4reduce_controller.p4runtime.stream import Stream, first_id, id_above
from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4.v1 import p4runtime_pb2_grpc
from p4reduce_runtime.p4runtime.errors import (
    NotPrimaryError,
    P4RuntimeError,
    SwitchUnreachableError,
    SwitchWithoutTlsError,
)
from p4reduce_runtime.security import SWITCH, Security, answers_without_tls, dial
from p4reduce_runtime.streams import received

Request = TypeVar("Request", p4r.WriteRequest, p4r.SetForwardingPipelineConfigRequest)

_BIDS = 3  # for another controller may outbid at the same time
_CHANNEL_OPTIONS = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a new connection does not inherit the backoff of the old one
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_metadata_size", 1 << 20),  # the error details of a large batch come as metadata
]


class Connection:
    """At most one open channel with one stream. Thread-safe. Callbacks come from the stream's thread."""

    def __init__(
        self,
        address: str,
        device_id: int,
        election_id: tuple[int, int] | None,
        timeout_s: float,
        *,
        security: Security | None,
        on_message: Callable[[p4r.StreamMessageResponse], None],
        on_primary: Callable[[bool], None],
        on_lost: Callable[[P4RuntimeError], None],
    ) -> None:
        self.address = address
        self.device_id = device_id
        self.election_id = election_id or first_id()
        self._outbids = election_id is None
        self.timeout_s = timeout_s
        self._security = security
        self._on_message, self._on_primary, self._on_lost = on_message, on_primary, on_lost
        self._lock = threading.RLock()
        self._channel: grpc.Channel | None = None
        self._rpc: p4runtime_pb2_grpc.P4RuntimeStub | None = None
        self._stream: Stream | None = None

    def open(self, *, require_primary: bool) -> None:
        """Connects and arbitrates; after an error there is no connection."""
        with self._lock:
            if self._channel is not None:
                raise P4RuntimeError("already connected; close() this connection first")
            if self._security is not None and answers_without_tls(self.address, self._security):
                raise SwitchWithoutTlsError(
                    f"the switch at {self.address} answers without TLS: start it with --tls-ca, --tls-certificate and "
                    "--tls-key, or set plain_p4runtime = true under [security] if it is on this machine"
                )
            if self._outbids:
                self.election_id = first_id()
            self._channel = channel = dial(self.address, self._security, role=SWITCH, options=_CHANNEL_OPTIONS)
            try:
                self._arbitrate(channel, require_primary)
            except BaseException:
                self.close()
                raise

    def _arbitrate(self, channel: grpc.Channel, require_primary: bool) -> None:
        self._rpc = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        self._stream = stream = Stream(
            self._rpc.StreamChannel,
            self.device_id,
            self.election_id,
            on_message=self._on_message,
            on_primary=self._on_primary,
            on_end=self._ended,
        )
        try:
            stream.arbitrate(self.timeout_s)
            for _ in range(_BIDS if self._outbids else 0):
                if stream.is_primary or stream.cannot_be_outbid:
                    break
                self.election_id = id_above(stream.largest)
                stream.arbitrate(self.timeout_s, self.election_id)
        except TimeoutError:
            raise SwitchUnreachableError(
                f"no P4Runtime server answers at {self.address} within {self.timeout_s} s; is the switch running"
                + ("?" if self._security is None else ", with TLS and a certificate of the same authority?")
            ) from None
        if require_primary and not stream.is_primary:
            raise NotPrimaryError(
                f"not primary for the switch at {self.address} with election id {self.election_id}: "
                f"{stream.why_not_primary()}"
            )

    def _ended(self, stream: Stream, reason: P4RuntimeError) -> None:
        if self._stream is stream and stream.arbitrated:  # before that, `open` reports the reason
            self._on_lost(reason)

    def close(self) -> None:
        """Ends the stream and the channel. May be called again."""
        with self._lock:
            stream, self._stream = self._stream, None
            if stream is not None:
                stream.close(self.timeout_s)
            if self._channel is not None:
                self._channel.close()
            self._channel = self._rpc = None

    def why_not_primary(self) -> str | None:
        """Why this controller is not primary, by the switch's last arbitration message; None if it is."""
        stream = self._stream
        if stream is None:
            return str(self._not_connected())
        return None if stream.is_primary else stream.why_not_primary()

    @property
    def is_primary(self) -> bool:
        """Whether the stream is up and this controller is primary."""
        stream = self._stream
        return stream is not None and stream.is_primary

    def call(self, name: str, request: Message, least_s: float = 0.0) -> Any:
        """One RPC under the deadline, or `least_s` where that is longer: its answer, or for Read all its answers.

        Lets grpc errors through.
        """
        if self._rpc is None:
            raise self._not_connected()
        rpc = getattr(self._rpc, name)
        timeout_s = max(self.timeout_s, least_s)
        answer = rpc(request, timeout=timeout_s)
        return list(received(answer)) if name == "Read" else answer

    def send(self, request: p4r.StreamMessageRequest) -> None:
        """Queues a message on the stream; SwitchUnreachableError when there is none."""
        stream = self._stream
        if stream is None:
            raise self._not_connected()
        stream.send(request)

    def addressed(self, request: Request) -> Request:
        """`request` with the device id and the election id filled in."""
        request.device_id = self.device_id
        request.election_id.high, request.election_id.low = self.election_id
        return request

    def _not_connected(self) -> SwitchUnreachableError:
        return SwitchUnreachableError(f"not connected to {self.address}; call connect()")
