"""Addresses of the loopback interface: which are free."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

LOOPBACK = "127.0.0.1"
_PORTS: Final = range(10_000, 21_000)
"""Below those that Linux gives to programs that ask for any port (ip_local_port_range), which would get one of ours
before it is bound."""


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM, ports: Iterable[int] | None = None) -> int:
    """Return a free port of the loopback interface: SOCK_STREAM for TCP, SOCK_DGRAM for UDP.

    `ports` are tried in turn; default: 1,000 at random. Raises OSError if none of them is free.
    """
    for port in random.SystemRandom().sample(_PORTS, 1000) if ports is None else ports:
        with socket.socket(socket.AF_INET, kind) as sock, suppress(OSError):
            sock.bind((LOOPBACK, port))
            return port
    raise OSError(f"no port of {LOOPBACK} that was tried is free: end other programs")


def free_address(kind: socket.SocketKind = socket.SOCK_STREAM) -> str:
    """Return HOST:PORT of such a port."""
    return f"{LOOPBACK}:{free_port(kind)}"


@contextmanager
def reserved_port() -> Iterator[int]:
    """A TCP port of the loopback interface that no other program is given in the block.

    A server that binds it by SO_REUSEADDR, as those of torch and gRPC do, gets it, since nothing listens there.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((LOOPBACK, 0))
        yield held.getsockname()[1]
