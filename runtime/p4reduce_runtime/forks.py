"""What a forked child must not do with its parent's gRPC: call by it, or keep its connections open.

gRPC's threads are not in the child, so a call would never end. And the server sees the end of a killed parent by the
end of its connection, which lasts as long as one process has the socket.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from typing import Any, Final

_uses_grpc = False
_inherited = False
_peers: Final[set[Any]] = set()
"""Host and port of servers."""


def use_grpc() -> None:
    """Note that this process uses gRPC. Raises RuntimeError, which says what to do, in a child of one that does."""
    global _uses_grpc
    check_grpc()
    _uses_grpc = True


def check_grpc() -> None:
    """Raise RuntimeError, which says what to do, in a forked child of a process that uses gRPC."""
    if _inherited:
        raise RuntimeError(
            "this process was forked from one that uses gRPC, which does not work in a forked child: start it with "
            'multiprocessing\'s start method "spawn" or "forkserver"'
        )


def keep_from_children(address: str) -> None:
    """Let children that are forked from now on not keep connections to HOST:PORT."""
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError, UnicodeError):
        _peers.update(found[4][:2] for found in socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM))


def _leave_to_parent() -> None:
    global _inherited
    _inherited = _inherited or _uses_grpc
    if _peers:
        with contextlib.suppress(OSError):  # without /proc
            for name in os.listdir("/proc/self/fd"):
                with contextlib.suppress(OSError):  # what listed the folder, or is not connected
                    _replace(int(name))


def _replace(descriptor: int) -> None:
    """Put /dev/null in the place of a connection of gRPC, which would close another file of its number later."""
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return
    connection = socket.socket(fileno=descriptor)
    try:
        peer: Any = connection.getpeername() if connection.family in (socket.AF_INET, socket.AF_INET6) else ()
    finally:
        connection.detach()
    if peer and (peer[0].removeprefix("::ffff:"), *peer[1:2]) in _peers:  # gRPC's IPv4 connections are of IPv6 sockets
        null = os.open(os.devnull, os.O_RDWR)
        try:
            os.dup2(null, descriptor, inheritable=False)
        finally:
            os.close(null)


os.register_at_fork(after_in_child=_leave_to_parent)
