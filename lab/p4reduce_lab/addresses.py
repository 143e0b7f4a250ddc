"""Addresses of the loopback interface: which are free, and which answer."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from typing import Final

LOOPBACK = "127.0.0.1"
_PORTS: Final = range(10_000, 21_000)
"""Below those that Linux gives to programs that ask for any port (ip_local_port_range), which would get one of ours
before it is bound."""


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """Return a free port of the loopback interface: SOCK_STREAM for TCP, SOCK_DGRAM for UDP. Raises OSError."""
    for port in random.SystemRandom().sample(_PORTS, 1000):
        with socket.socket(socket.AF_INET, kind) as sock, suppress(OSError):
            sock.bind((LOOPBACK, port))
            return port
    raise OSError(f"of 1,000 ports from {_PORTS[0]} to {_PORTS[-1]} none is free: end other programs")


def free_address(kind: socket.SocketKind = socket.SOCK_STREAM) -> str:
    """Return HOST:PORT of such a port."""
    return f"{LOOPBACK}:{free_port(kind)}"


def free_addresses(count: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> list[str]:
    """Return so many of them, all different."""
    found: set[str] = set()
    while len(found) < count:
        found.add(free_address(kind))
    return sorted(found)


def answers(address: str) -> bool:
    """Return whether a process listens for TCP at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1.0).close()
    except OSError:
        return False
    return True
