"""Ports for programs that bind them later, or again, which no other program is given meanwhile.

A port that the system chose is one that it may choose again while it is free: before a script binds it, or while
a switch is started again at its address. These are below the ports that the system chooses (ip_local_port_range), and
each is kept for the process of pytest-xdist that took it, by a name that only one process can have.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator
from typing import Final

LOOPBACK: Final = "127.0.0.1"
PORTS: Final = range(22_000, 32_000)
_kept: list[socket.socket] = []


def own_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """Return a free port of the loopback interface, another one each time: SOCK_STREAM for TCP, SOCK_DGRAM for UDP."""
    for port in _kept_ports():
        with socket.socket(socket.AF_INET, kind) as one, contextlib.suppress(OSError):
            one.bind((LOOPBACK, port))
            return port
    raise OSError(f"no port of {LOOPBACK} in {PORTS} is free")


def _kept_ports() -> Iterator[int]:
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0p4reduce tests, port {port}")
        except OSError:  # it is kept for a process of tests, maybe for this one
            name.close()
        else:
            _kept.append(name)
            yield port


def own_address(kind: socket.SocketKind = socket.SOCK_STREAM) -> str:
    """Return HOST:PORT of such a port."""
    return f"{LOOPBACK}:{own_port(kind)}"
