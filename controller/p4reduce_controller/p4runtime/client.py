"""P4Runtime client for one switch: BMv2's simple_switch_grpc, the software switch, or another target.

with Client("127.0.0.1:9559") as switch:
    switch.set_pipeline(p4info, device_config)
    switch.insert(TableEntry("MainIngress.forwarding.mac_table", {"dst_mac": 2}, "forward", {"port": 1}))
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import grpc
from google.protobuf.message import Message

from p4reduce_controller.p4runtime import failures
from p4reduce_controller.p4runtime.stream import Stream, first_id, id_above
from p4reduce_runtime.p4.config.v1 import p4info_pb2 as p4i
from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4.v1 import p4runtime_pb2_grpc
from p4reduce_runtime.p4runtime import bytestrings, codec, quirks
from p4reduce_runtime.p4runtime.entries import CounterEntry, Entry, MulticastGroup, TableEntry
from p4reduce_runtime.p4runtime.errors import (
    NotPrimaryError,
    P4RuntimeError,
    PipelineError,
    ReadError,
    SchemaError,
    SwitchUnreachableError,
    SwitchWithoutTlsError,
)
from p4reduce_runtime.p4runtime.schema import Schema
from p4reduce_runtime.security import SWITCH, Security, answers_without_tls, dial
from p4reduce_runtime.streams import received

Operation = Literal["insert", "modify", "delete"]
Request = TypeVar("Request", p4r.WriteRequest, p4r.SetForwardingPipelineConfigRequest)

_log = logging.getLogger(__name__)
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
_TYPES: dict[str, int] = {name: getattr(p4r.Update, name.upper()) for name in ("insert", "modify", "delete")}


@dataclass(frozen=True)
class Pipeline:
    """The program of a switch."""

    p4info: p4i.P4Info
    device_config: bytes
    cookie: int | None


PIPELINE_S = 30.0
"""Seconds that a switch may take for a program at least: it may have to compile it, on a busy machine."""


class Client:
    """A controller's connection to one switch. Thread-safe; every call has a deadline of `timeout_s`.

    Callbacks (set them before `connect`) run one at a time on the stream's thread, so they must not wait:
      on_packet_in(payload, metadata)   metadata by P4Info name
      on_digest(name, messages)         acknowledged when it returns; fields in P4Info order
      on_lost(reason)                   the stream ended; after `close`, `connect` starts a new one
      on_primary(is_primary)            the switch made this controller primary, or another one
    """

    on_packet_in: Callable[[bytes, dict[str, int]], None] | None = None
    on_digest: Callable[[str, list[tuple[int, ...]]], None] | None = None
    on_lost: Callable[[P4RuntimeError], None] | None = None
    on_primary: Callable[[bool], None] | None = None

    def __init__(
        self,
        address: str,
        device_id: int = 1,
        election_id: tuple[int, int] | None = (0, 1),
        timeout_s: float = 5.0,
        security: Security | None = None,
    ) -> None:
        """`address` is "host:port", `election_id` (high, low): the controller with the largest one is primary.

        With None for it, each `connect` takes one that is larger than any other controller's.
        Without `security` the connection has no TLS.
        """
        self.address = address
        self.device_id = device_id
        self.election_id = election_id or first_id()
        self.timeout_s = timeout_s
        self._outbids = election_id is None
        self._security = security
        self._schema: Schema | None = None
        self._lock = threading.RLock()
        self._channel: grpc.Channel | None = None
        self._rpc: p4runtime_pb2_grpc.P4RuntimeStub | None = None
        self._stream: Stream | None = None

    # ---- connection

    def connect(self, *, require_primary: bool = True) -> None:
        """Open the connection and request mastership.

        Raises SwitchUnreachableError, or NotPrimaryError when another controller has a larger election id (unless
        `require_primary` is false: a backup may read).
        """
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

    def close(self) -> None:
        """Ends the stream and the connection. May be called again."""
        with self._lock:
            stream, self._stream = self._stream, None
            if stream is not None:
                stream.close(self.timeout_s)
            if self._channel is not None:
                self._channel.close()
            self._channel = self._rpc = None

    def __enter__(self) -> Client:
        self.connect()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def is_primary(self) -> bool:
        """Whether the stream is up and this controller is primary."""
        stream = self._stream
        return stream is not None and stream.is_primary

    def why_not_primary(self) -> str | None:
        """The reason why this controller is not primary, by the switch's last arbitration message; None if it is."""
        stream = self._stream
        if stream is None:
            return str(self._not_connected())
        return None if stream.is_primary else stream.why_not_primary()

    def _arbitrate(self, channel: grpc.Channel, require_primary: bool) -> None:
        self._rpc = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        self._stream = stream = Stream(
            self._rpc.StreamChannel,
            self.device_id,
            self.election_id,
            on_message=_logging_errors(self._received),
            on_primary=_logging_errors(lambda primary: self.on_primary and self.on_primary(primary)),
            on_end=_logging_errors(self._ended),
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
        if self._stream is stream and stream.arbitrated and self.on_lost:  # before that, `connect` reports the reason
            self.on_lost(reason)

    @property
    def schema(self) -> Schema:
        """The program's names; known after `set_pipeline` or `get_pipeline`."""
        if self._schema is None:
            raise PipelineError("no program is known yet; call set_pipeline or get_pipeline first")
        return self._schema

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

    def addressed(self, request: Request) -> Request:
        """`request` with the device id and the election id filled in."""
        request.device_id = self.device_id
        request.election_id.high, request.election_id.low = self.election_id
        return request

    def _not_connected(self) -> SwitchUnreachableError:
        return SwitchUnreachableError(f"not connected to {self.address}; call connect()")

    # ---- program

    def set_pipeline(self, p4info: p4i.P4Info | str, device_config: bytes, *, cookie: int | None = None) -> None:
        """Gives the switch a program (P4Info message or text, BMv2 JSON); it starts empty. PipelineError if refused."""
        schema = Schema.from_p4info(p4info)
        request = self.addressed(p4r.SetForwardingPipelineConfigRequest())
        request.action = request.VERIFY_AND_COMMIT
        request.config.p4info.CopyFrom(schema.p4info)
        request.config.p4_device_config = device_config
        if cookie is not None:
            request.config.cookie.cookie = cookie
        try:
            self.call("SetForwardingPipelineConfig", request, PIPELINE_S)
        except grpc.RpcError as error:
            raise failures.of_pipeline(error, self.address) from error
        self._schema = schema

    def get_pipeline(self) -> Pipeline | None:
        """The switch's program, or None when it has none. Sets `schema`."""
        request = p4r.GetForwardingPipelineConfigRequest(device_id=self.device_id)
        try:
            config = self.call("GetForwardingPipelineConfig", request).config
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                return None
            raise failures.of_pipeline(error, self.address) from error
        if quirks.is_no_pipeline(config):
            return None
        self._schema = Schema.from_p4info(config.p4info)
        cookie = config.cookie.cookie if config.HasField("cookie") else None
        return Pipeline(config.p4info, config.p4_device_config, cookie)

    def capabilities(self) -> str:
        """The switch's version of P4Runtime, for example "1.3.0"."""
        try:
            return str(self.call("Capabilities", p4r.CapabilitiesRequest()).p4runtime_api_version)
        except grpc.RpcError as error:
            raise failures.of_read(error, self.address) from error

    # ---- write

    def insert(self, *entries: Entry) -> None:
        """Inserts entries as one batch; WriteError names those refused."""
        self.write([("insert", entry) for entry in entries])

    def delete(self, *entries: Entry) -> None:
        """Deletes entries as one batch."""
        self.write([("delete", entry) for entry in entries])

    def write(self, updates: Iterable[tuple[Operation, Entry | p4r.Entity]]) -> None:
        """One batch in order. WriteError lists each refused update with its entry; the others are applied."""
        batch: Sequence[tuple[Operation, Entry | p4r.Entity]] = list(updates)
        if not batch:
            return
        request = self.addressed(p4r.WriteRequest())
        for operation, entry in batch:
            request.updates.add(type=_TYPES[operation]).entity.CopyFrom(codec.encode(self.schema, entry))
        try:
            self.call("Write", request)
        except grpc.RpcError as error:
            raise failures.of_write(error, batch, self.address) from error

    # ---- read

    def read(self, *entities: p4r.Entity) -> list[Entry]:
        """Reads P4Runtime entities (with their wildcards) in one request."""
        request = p4r.ReadRequest(device_id=self.device_id, entities=entities)
        try:
            responses = self.call("Read", request)
        except grpc.RpcError as error:
            raise failures.of_read(error, self.address) from error
        try:
            return [codec.decode(self.schema, entity) for response in responses for entity in response.entities]
        except SchemaError as error:
            raise ReadError(f"the switch at {self.address} answered a read with an invalid message: {error}") from error

    def read_table(self, name: str) -> list[TableEntry]:
        """All entries of a table, without the default entry."""
        entity = p4r.Entity()
        entity.table_entry.table_id = self.schema.tables[name].id
        return [entry for entry in self.read(entity) if isinstance(entry, TableEntry) and not entry.is_default]

    def read_counter(self, name: str, index: int | None = None) -> list[CounterEntry]:
        """One cell of an indirect counter, or all of them in order."""
        entity = p4r.Entity()
        entity.counter_entry.counter_id = self.schema.counters[name].id
        if index is not None:
            entity.counter_entry.index.index = index
        return [entry for entry in self.read(entity) if isinstance(entry, CounterEntry)]

    def read_groups(self) -> list[MulticastGroup]:
        """All multicast groups."""
        entity = p4r.Entity()
        entity.packet_replication_engine_entry.multicast_group_entry.SetInParent()
        return [entry for entry in self.read(entity) if isinstance(entry, MulticastGroup)]

    # ---- stream

    def packet_out(self, payload: bytes, egress_port: int, **metadata: int) -> None:
        """Sends a frame out of a port. Metadata the program names besides `egress_port` is 0 unless given."""
        request = p4r.StreamMessageRequest()
        request.packet.payload = payload
        values: Mapping[str, int] = {"egress_port": egress_port, **metadata}
        unknown = set(values) - {field.name for field in self.schema.packet_out}
        if unknown:
            raise SchemaError(f"the program's packet-out header has no field {', '.join(sorted(unknown))}")
        for field in self.schema.packet_out:
            try:
                value = quirks.byte_string(values.get(field.name, 0), field.bitwidth)
            except ValueError as error:
                raise SchemaError(f"packet-out {field.name}: {error}") from error
            request.packet.metadata.add(metadata_id=field.id, value=value)
        self._send(request)

    def _send(self, request: p4r.StreamMessageRequest) -> None:
        """Queues a message on the stream; SwitchUnreachableError when there is none."""
        stream = self._stream
        if stream is None:
            raise self._not_connected()
        stream.send(request)

    def _received(self, message: p4r.StreamMessageResponse) -> None:
        kind = message.WhichOneof("update")
        if kind == "packet":
            self._packet_in(message.packet)
        elif kind == "digest":
            self._digest(message.digest)
        elif kind == "error":
            _log.warning("switch %s: %s", self.address, message.error.message or message.error)

    def _packet_in(self, packet: p4r.PacketIn) -> None:
        if self.on_packet_in is None or self._schema is None:
            return
        names = {field.id: field.name for field in self._schema.packet_in}
        metadata = {
            names[m.metadata_id]: bytestrings.decode(m.value) for m in packet.metadata if m.metadata_id in names
        }
        self.on_packet_in(packet.payload, metadata)

    def _digest(self, digest: p4r.DigestList) -> None:
        if self._schema is None or digest.digest_id not in self._schema.digests.by_id:
            return
        info = self._schema.digests.by_id[digest.digest_id]
        if self.on_digest is not None:
            self.on_digest(info.name, [codec.decode_data(data) for data in digest.data])
        request = p4r.StreamMessageRequest()
        request.digest_ack.digest_id, request.digest_ack.list_id = digest.digest_id, digest.list_id
        self._send(request)


def _logging_errors(callback: Callable[..., object]) -> Callable[..., None]:
    """Return a callback whose errors are logged: they must not end the stream's thread."""

    def call(*arguments: object) -> None:
        try:
            callback(*arguments)
        except Exception:  # of any kind
            _log.exception("a callback of the P4Runtime client failed")

    return call
