"""Addresses at which a server may listen."""

from __future__ import annotations

import socket


def answers(address: str) -> bool:
    """Return whether a process listens for TCP at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1.0).close()
    except OSError:
        return False
    return True
