"""Limits on the calls with which a caller keeps a gRPC server waiting, and handlers that can hold to them.

gRPC calls the handler of a method with one request when the request has arrived. Until then the call takes a thread of
the server, or memory, for as long as its caller likes. Servers therefore register such methods with a stream of
requests: that handler runs when the headers have arrived, so it can check the caller's certificate first, and let the
wait for the request be ended here.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from p4reduce_runtime.threads import DaemonThread

PATIENCE_S: Final = 30.0
"""Seconds that a caller may take for a handshake, a request, or to receive the replies."""
_IDLE_S: Final = 60.0
"""A connection without calls is closed after it; gRPC's clients connect again for their next call."""


def connection_options(calls: int) -> list[tuple[str, int]]:
    """Return a server's options that limit each connection; gRPC's clients let more than so many `calls` wait."""
    return [
        ("grpc.server_handshake_timeout_ms", round(PATIENCE_S * 1000)),
        ("grpc.max_connection_idle_ms", round(_IDLE_S * 1000)),
        ("grpc.max_concurrent_streams", calls),
    ]


def generic_handler(
    service: ServiceDescriptor, servicer: object, guard_of: Callable[[str, Callable[[bytes], Message]], Any]
) -> grpc.GenericRpcHandler:
    """Return a generic handler, of grpc or grpc.aio, that serves each RPC with the method of that name on `servicer`.

    `guard_of` returns what checks the calls of an RPC, from its name and what parses its requests: its methods
    `unary_unary`, `unary_stream` and `stream_stream` wrap a method of the servicer of that kind. The wrapped ones take
    an iterator of bytes in place of a request.
    """
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
    for method in service.methods:
        request, reply = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        guard = guard_of(method.name, request.FromString)
        serve = getattr(servicer, method.name)
        behavior: Callable[..., object]
        if method.client_streaming:
            behavior, kind = guard.stream_stream(serve), grpc.stream_stream_rpc_method_handler
        elif method.server_streaming:
            behavior, kind = guard.unary_stream(serve), grpc.stream_stream_rpc_method_handler
        else:
            behavior, kind = guard.unary_unary(serve), grpc.stream_unary_rpc_method_handler
        handlers[method.name] = kind(behavior, response_serializer=reply.SerializeToString)
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


@dataclass(frozen=True)
class _Wait:
    end: Callable[[], object]
    until: float
    kept: bool


class WaitingCalls:
    """The calls of a server that wait for their callers. Thread-safe.

    A call that waits for `limit_s` is ended. While more than `most` wait, so is the one that has waited longest: a
    caller that sends its request together with the headers does not notice calls without a request.
    """

    def __init__(self, most: int, limit_s: float = PATIENCE_S) -> None:
        self._most = most
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._waits: dict[object, _Wait] = {}  # in the order of their times
        self._reasons: dict[object, str] = {}
        self._closed = threading.Event()
        self._thread = DaemonThread(self._run, "waiting-calls")
        self._thread.start()

    def add(self, call: object, end: Callable[[], object], *, kept: bool = False) -> None:
        """Let a call wait, until `remove`. `end` is called if it waits too long, and unless `kept` if too many wait."""
        wait = _Wait(end, time.monotonic() + self._limit_s, kept)
        with self._lock:
            self._waits[call] = wait
            if len(self._waits) <= self._most:
                return
            oldest = next((each for each, other in self._waits.items() if not other.kept), None)
            ended = self._end(oldest, f"more than {self._most} calls waited for their callers, this one longest")
        ended()

    def remove(self, call: object) -> str:
        """Note that a call no longer waits; idempotent. Return why it was ended; "" if it was not."""
        with self._lock:
            self._waits.pop(call, None)
            return self._reasons.pop(call, "")

    def close(self) -> None:
        """End the thread; calls that wait stay."""
        self._closed.set()
        self._thread.join(self._limit_s)

    def _end(self, call: object | None, reason: str) -> Callable[[], object]:
        """Note that a call is ended; return what ends it, to be called without the lock."""
        if call is None:
            return lambda: None
        self._reasons[call] = reason
        return self._waits.pop(call).end

    def _run(self) -> None:
        while not self._closed.wait(self._limit_s / 4):
            now = time.monotonic()
            with contextlib.ExitStack() as ends, self._lock:  # which ends all, also where one fails
                for call in [call for call, wait in self._waits.items() if wait.until <= now]:
                    ends.callback(self._end(call, f"its caller let it wait for {self._limit_s:g} s"))
