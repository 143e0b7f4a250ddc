"""Calls and connections that occupy a gRPC server and send nothing."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import grpc

_CONNECTIONS = 4
_OPTIONS = [("grpc.use_local_subchannel_pool", 1)]


@contextlib.contextmanager
def idle_calls(
    address: str, methods: Sequence[str], count: int = 48, options: Sequence[tuple[str, Any]] = (), **security: Any
) -> Iterator[list[Any]]:
    """Open `count` calls of each method ("/package.Service/Method") that send headers, by four connections."""
    done = threading.Event()

    def nothing() -> Iterator[bytes]:
        done.wait()
        yield from ()

    with contextlib.ExitStack() as stack:
        channels = [
            stack.enter_context(_channel(address, [*_OPTIONS, *options], **security)) for _ in range(_CONNECTIONS)
        ]
        stack.callback(done.set)
        calls = [
            channels[number % _CONNECTIONS].stream_stream(method)(nothing(), wait_for_ready=True)
            for method in methods
            for number in range(count)
        ]
        yield calls  # which are cancelled when nothing refers to them


def _channel(address: str, options: list[tuple[str, Any]], credentials: grpc.ChannelCredentials | None = None) -> Any:
    if credentials is None:
        return grpc.insecure_channel(address, options)
    return grpc.secure_channel(address, credentials, options)


@contextlib.contextmanager
def idle_connections(address: str, sent: bytes = b"", count: int = 200) -> Iterator[None]:
    """Open TCP connections to HOST:PORT that send these bytes and nothing more."""
    host, _, port = address.rpartition(":")
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(socket.create_connection((host, int(port)))).sendall(sent)
        yield
