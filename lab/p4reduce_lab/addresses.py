"""Addresses of the loopback interface: which are free, and which answer."""

from __future__ import annotations

import socket
from contextlib import ExitStack

LOOPBACK = "127.0.0.1"


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """Return a free port of the loopback interface: SOCK_STREAM for TCP, SOCK_DGRAM for UDP."""
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.bind((LOOPBACK, 0))
        return int(sock.getsockname()[1])


def free_address(kind: socket.SocketKind = socket.SOCK_STREAM) -> str:
    """Return HOST:PORT of such a port."""
    return f"{LOOPBACK}:{free_port(kind)}"


def free_addresses(count: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> list[str]:
    """Return so many of them, all different."""
    with ExitStack() as stack:
        ports = []
        for _ in range(count):
            sock = stack.enter_context(socket.socket(socket.AF_INET, kind))
            sock.bind((LOOPBACK, 0))
            ports.append(sock.getsockname()[1])
        return [f"{LOOPBACK}:{port}" for port in ports]


def answers(address: str) -> bool:
    """Return whether a process listens for TCP at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1.0).close()
    except OSError:
        return False
    return True
