"""What a call has to pass before the switch looks at it: the caller's certificate, and the size of the request.

gRPC knows one limit for all requests, and parses what is below it before anybody is asked. Here the bytes are parsed
after both checks, so a stranger's request costs what its bytes take until they are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NoReturn

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from p4reduce_contracts.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.security import CONTROLLER, peer_name, peer_roles
from p4reduce_switch.p4runtime.status import Code, Refused, abort

_SERVICE: Final = p4r.DESCRIPTOR.services_by_name["P4Runtime"]
MAX_PIPELINE_BYTES: Final = 32 << 20
"""A compiled program with its P4Info; p4reduce's own take 0.2 MB, the largest of p4c's samples 30 MB."""
MAX_REQUEST_BYTES: Final[Mapping[str, int]] = {
    "SetForwardingPipelineConfig": MAX_PIPELINE_BYTES,
    "Write": 4 << 20,
    "StreamChannel": 1 << 20,
}
MAX_QUERY_BYTES: Final = 256 << 10
"""Of every other request."""


def generic_handler(servicer: object, *, only_controllers: bool, on_refused: Callable[[str, Refused], None]) -> Any:
    """Return a grpc generic handler that serves each RPC with the method of that name on `servicer`.

    With `only_controllers` the caller's certificate has to name that role. `on_refused` is told which RPC was refused
    here, and why.
    """
    handlers = {}
    for method in _SERVICE.methods:
        request, response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        door = _Door(method.name, request.FromString, only_controllers, on_refused)
        shape = f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
        pass_on = {"unary_unary": door.unary, "unary_stream": door.streamed, "stream_stream": door.both_streamed}
        handlers[method.name] = getattr(grpc, f"{shape}_rpc_method_handler")(
            pass_on[shape](getattr(servicer, method.name)), response_serializer=response.SerializeToString
        )
    return grpc.method_handlers_generic_handler(_SERVICE.full_name, handlers)


class _Door:
    """The checks of one RPC, before each shape of method."""

    def __init__(
        self,
        name: str,
        parse: Callable[[bytes], Any],
        only_controllers: bool,
        on_refused: Callable[[str, Refused], None],
    ) -> None:
        self._name = name
        self._parse = parse
        self._only_controllers = only_controllers
        self._on_refused = on_refused
        self._limit = MAX_REQUEST_BYTES.get(name, MAX_QUERY_BYTES)

    def unary(self, method: Callable[[Any, Any], Any]) -> Callable[[bytes, Any], Any]:
        def call(raw: bytes, context: Any) -> Any:
            return method(self._request(raw, context), context)

        return call

    def streamed(self, method: Callable[[Any, Any], Iterator[Any]]) -> Callable[[bytes, Any], Iterator[Any]]:
        def call(raw: bytes, context: Any) -> Iterator[Any]:
            yield from method(self._request(raw, context), context)

        return call

    def both_streamed(
        self, method: Callable[[Iterator[Any], Any], Iterator[Any]]
    ) -> Callable[[Iterator[bytes], Any], Iterator[Any]]:
        def call(raws: Iterator[bytes], context: Any) -> Iterator[Any]:
            self._check_peer(context)
            yield from method(map(self._parsed, raws), context)

        return call

    def _request(self, raw: bytes, context: Any) -> Any:
        self._check_peer(context)
        try:
            return self._parsed(raw)
        except Refused as refused:
            self._refuse(context, refused)

    def _refuse(self, context: Any, refused: Refused) -> NoReturn:
        self._on_refused(self._name, refused)
        abort(context, refused)

    def _parsed(self, raw: bytes) -> Any:
        """The request in these bytes. Raises Refused."""
        if len(raw) > self._limit:
            raise Refused(
                Code.RESOURCE_EXHAUSTED, f"{self._name} takes at most {self._limit} bytes at a time, not {len(raw)}"
            )
        try:
            return self._parse(raw)
        except DecodeError as error:
            raise Refused(Code.INVALID_ARGUMENT, f"this is no request of {self._name}: {error}") from None

    def _check_peer(self, context: Any) -> None:
        if self._only_controllers and CONTROLLER not in peer_roles(context):
            refusal = f"the certificate of {peer_name(context)} does not name {CONTROLLER}: it gives no orders here"
            self._refuse(context, Refused(Code.PERMISSION_DENIED, refusal))
