"""Checks on each call before its request is parsed: the caller's certificate, how many calls wait, the request's size.

gRPC has one size limit for all requests, and parses a request before a servicer or an interceptor can look at it. The
handlers here take bytes and parse them after the checks: an unauthorized request is neither waited for nor parsed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final, NoReturn, TypeAlias

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import DecodeError, Message

from p4reduce_runtime import waiting_calls
from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.security import CONTROLLER, peer_name, peer_roles
from p4reduce_runtime.waiting_calls import WaitingCalls
from p4reduce_switch.p4runtime.status import Code, RequestError, abort, invalid_argument

Context: TypeAlias = grpc.ServicerContext
Requests: TypeAlias = Iterator[bytes]
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
"""Bytes of every other request."""
MAX_WAITING: Final = 32
"""Calls whose request has not arrived, and streams that have not arbitrated."""
MAX_OTHERS: Final = 16
"""Calls in progress, besides streams, that are not of the primary controller's connection."""


class Admission:
    """What a server may be occupied with by its callers, and whose calls have a share of their own.

    Each call takes a thread, from its headers to its end. The primary controller's connection always finds one.
    """

    def __init__(self, only_controllers: bool, primary_peer: Callable[[], str]) -> None:
        """With `only_controllers` callers need a certificate with the controller role.

        `primary_peer` returns gRPC's name of the primary controller's connection, "" without one.
        """
        self.only_controllers = only_controllers
        self.waiting = WaitingCalls(MAX_WAITING)
        self.others = threading.BoundedSemaphore(MAX_OTHERS)
        self._primary_peer = primary_peer

    def is_primary(self, context: Context) -> bool:
        """Whether a call comes by the primary controller's connection."""
        return bool(context.peer() == self._primary_peer())


def generic_handler(
    service: ServiceDescriptor,
    servicer: object,
    *,
    admission: Admission,
    on_refused: Callable[[str, RequestError], None],
) -> grpc.GenericRpcHandler:
    """Return a grpc generic handler that serves each RPC of a service with the method of that name on `servicer`.

    A method with a stream of requests calls `admission.waiting.remove` once its caller need not be waited for.
    `on_refused` is called with the name of the RPC and the error for each call that fails a check.
    """
    return waiting_calls.generic_handler(
        service, servicer, partial(_RequestGuard, admission=admission, on_refused=on_refused)
    )


class _RequestGuard:
    """The checks of one RPC, for each kind of method that gRPC has."""

    def __init__(
        self,
        name: str,
        parse: Callable[[bytes], Message],
        admission: Admission,
        on_refused: Callable[[str, RequestError], None],
    ) -> None:
        self._name = name
        self._parse = parse
        self._admission = admission
        self._on_refused = on_refused
        self._max_bytes = MAX_REQUEST_BYTES.get(name, MAX_QUERY_BYTES)

    def unary_unary(self, method: Callable[[Message, Context], Message]) -> Callable[[Requests, Context], Message]:
        def call(serialized: Requests, context: Context) -> Message:
            request = self._request(serialized, context)
            with self._turn(context):
                return method(request, context)

        return call

    def unary_stream(self, method: Callable[[Message, Context], Replies]) -> Callable[[Requests, Context], Replies]:
        def call(serialized: Requests, context: Context) -> Replies:
            request = self._request(serialized, context)
            with self._turn(context), self._waiting(context):
                yield from method(request, context)

        return call

    def stream_stream(
        self, method: Callable[[Iterator[Message], Context], Replies]
    ) -> Callable[[Requests, Context], Replies]:
        def call(serialized: Requests, context: Context) -> Replies:
            self._check_role(context)
            with self._waiting(context):
                yield from method(map(self._parsed, serialized), context)

        return call

    def _request(self, serialized: Requests, context: Context) -> Message:
        """Wait for the request and return it."""
        self._check_role(context)
        with self._waiting(context):
            first = next(serialized, None)
        try:
            if first is None:
                invalid_argument(f"{self._name} takes one request, and none was sent")
            return self._parsed(first)
        except RequestError as error:
            self._abort(context, error)

    @contextmanager
    def _waiting(self, context: Context) -> Iterator[None]:
        """Let the call wait for its caller; count it as refused if the wait is ended."""
        self._admission.waiting.add(context, context.cancel, kept=self._admission.is_primary(context))
        try:
            yield
        finally:
            if reason := self._admission.waiting.remove(context):
                self._on_refused(self._name, RequestError(Code.DEADLINE_EXCEEDED, reason))

    @contextmanager
    def _turn(self, context: Context) -> Iterator[None]:
        """Hold one of the calls in progress that are not the primary's, if the call is none of the primary's."""
        if self._admission.is_primary(context):
            yield
            return
        if not self._admission.others.acquire(blocking=False):
            reason = f"{MAX_OTHERS} calls that are not the primary controller's are in progress; call again later"
            self._abort(context, RequestError(Code.RESOURCE_EXHAUSTED, reason))
        try:
            yield
        finally:
            self._admission.others.release()

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
        if self._admission.only_controllers and CONTROLLER not in peer_roles(context):
            reason = f"the certificate of {peer_name(context)} does not name {CONTROLLER}: it has no controller role"
            self._abort(context, RequestError(Code.PERMISSION_DENIED, reason))
