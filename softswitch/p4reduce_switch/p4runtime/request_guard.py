"""Checks on each call before its request is parsed: the caller's certificate, and the size of the request.

gRPC has one size limit for all requests, and parses a request before a servicer or an interceptor can look at it. The
handlers here take bytes and parse them after both checks: an unauthorized request is not parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NoReturn, TypeAlias

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from p4reduce_contracts.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.security import CONTROLLER, peer_name, peer_roles
from p4reduce_switch.p4runtime.status import Code, RequestError, abort

Context: TypeAlias = grpc.ServicerContext
Replies: TypeAlias = Iterator[Message]
P4RUNTIME: Final = p4r.DESCRIPTOR.services_by_name["P4Runtime"]
MAX_PIPELINE_BYTES: Final = 32 << 20
"""A compiled program with its P4Info; p4reduce's own take 0.2 MB, the largest of p4c's samples 30 MB."""
MAX_REQUEST_BYTES: Final[Mapping[str, int]] = {
    "SetForwardingPipelineConfig": MAX_PIPELINE_BYTES,
    "Write": 4 << 20,
    "StreamChannel": 1 << 20,
}
MAX_QUERY_BYTES: Final = 256 << 10
"""Of every other request."""


def generic_handler(
    service: ServiceDescriptor,
    servicer: object,
    *,
    only_controllers: bool,
    on_refused: Callable[[str, RequestError], None],
) -> grpc.GenericRpcHandler:
    """Return a grpc generic handler that serves each RPC of a service with the method of that name on `servicer`.

    With `only_controllers` the caller's certificate must have the controller role. `on_refused` is called with the
    name of the RPC and the error for each call that fails a check.
    """
    handlers = {}
    for method in service.methods:
        request, response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        guard = _RequestGuard(method.name, request.FromString, only_controllers, on_refused)
        guarded: dict[str, Callable[..., object]] = {
            "unary_unary": guard.unary_unary,
            "unary_stream": guard.unary_stream,
            "stream_stream": guard.stream_stream,
        }
        kind = f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
        handlers[method.name] = getattr(grpc, f"{kind}_rpc_method_handler")(
            guarded[kind](getattr(servicer, method.name)), response_serializer=response.SerializeToString
        )
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


class _RequestGuard:
    """The checks of one RPC, for each kind of method that gRPC has."""

    def __init__(
        self,
        name: str,
        parse: Callable[[bytes], Message],
        only_controllers: bool,
        on_refused: Callable[[str, RequestError], None],
    ) -> None:
        self._name = name
        self._parse = parse
        self._only_controllers = only_controllers
        self._on_refused = on_refused
        self._max_bytes = MAX_REQUEST_BYTES.get(name, MAX_QUERY_BYTES)

    def unary_unary(self, method: Callable[[Message, Context], Message]) -> Callable[[bytes, Context], Message]:
        def call(serialized: bytes, context: Context) -> Message:
            return method(self._request(serialized, context), context)

        return call

    def unary_stream(self, method: Callable[[Message, Context], Replies]) -> Callable[[bytes, Context], Replies]:
        def call(serialized: bytes, context: Context) -> Replies:
            yield from method(self._request(serialized, context), context)

        return call

    def stream_stream(
        self, method: Callable[[Iterator[Message], Context], Replies]
    ) -> Callable[[Iterator[bytes], Context], Replies]:
        def call(serialized: Iterator[bytes], context: Context) -> Replies:
            self._check_role(context)
            yield from method(map(self._parsed, serialized), context)

        return call

    def _request(self, serialized: bytes, context: Context) -> Message:
        self._check_role(context)
        try:
            return self._parsed(serialized)
        except RequestError as error:
            self._abort(context, error)

    def _abort(self, context: Context, error: RequestError) -> NoReturn:
        self._on_refused(self._name, error)
        abort(context, error)

    def _parsed(self, serialized: bytes) -> Message:
        """Return the request in these bytes. Raises RequestError."""
        if len(serialized) > self._max_bytes:
            reason = f"{self._name} takes at most {self._max_bytes} bytes at a time, not {len(serialized)}"
            raise RequestError(Code.RESOURCE_EXHAUSTED, reason)
        try:
            return self._parse(serialized)
        except DecodeError as error:
            raise RequestError(Code.INVALID_ARGUMENT, f"this is no request of {self._name}: {error}") from None

    def _check_role(self, context: Context) -> None:
        if self._only_controllers and CONTROLLER not in peer_roles(context):
            reason = f"the certificate of {peer_name(context)} does not name {CONTROLLER}: it has no controller role"
            self._abort(context, RequestError(Code.PERMISSION_DENIED, reason))
