"""Ports for programs that bind them later, or again, which no other program is given meanwhile.

A port that the system chose is one that it may choose again while it is free: before a script binds it, or while
a switch is started again at its address. These are below the ports that the system chooses (ip_local_port_range), and
each process of pytest-xdist has its own.
"""

from __future__ import annotations

import os
import random
import socket
from itertools import cycle, islice
from typing import Final

from p4reduce_lab.addresses import LOOPBACK, free_port

FIRST: Final = 22_000
EACH: Final = 640
"""For each of 16 processes."""


def _ports() -> list[int]:
    first = FIRST + EACH * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 16)
    turn = random.SystemRandom().randrange(EACH)  # another run on this machine has the same ports
    return [first + (turn + number) % EACH for number in range(EACH)]


_next = cycle(_ports())


def own_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """Return a free port of the loopback interface, another one each time: SOCK_STREAM for TCP, SOCK_DGRAM for UDP."""
    return free_port(kind, islice(_next, EACH))


def own_address(kind: socket.SocketKind = socket.SOCK_STREAM) -> str:
    """Return HOST:PORT of such a port."""
    return f"{LOOPBACK}:{own_port(kind)}"
