"""Many datagrams a system call: what compiled kernels need to use a UDP socket without Python.

Linux carries a run of datagrams of equal length through the kernel as one super-datagram: GSO cuts it up as late as
possible, and GRO hands what arrived in a row to the receiver as one. The kernel's 3 us a packet are then spent once a
run. Nobody else sees it: a receiver without GRO gets plain datagrams, and a link carries them.

`kernels.py` has the functions; this module what Python needs around them: `io = words(descriptor)` is the state of one
socket, an array of int64 that the kernels use as scratch memory too, so that no two threads may use it at once. A
destination is an array of int64 as well (`destination`), which remembers whether super-datagrams are refused on the way
there, and how long they may be. A shaper cuts up what is longer than its burst, and each datagram then costs what a run
does, but nobody tells the sender. So one end tries it out, and the other `follow`s.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

ENCAP_BYTES: Final = 14 + 20 + 8
"""Ethernet, IPv4 (no options) and UDP headers around every frame."""

# words of a socket's state
DESCRIPTOR: Final = 0
SEGMENT: Final = 1
"""Bytes of each datagram in what was received last; its last one may be shorter."""
SENDER_IP: Final = 2
"""The IPv4 address where that came from, as a number."""
SENDER_PORT: Final = 3
ERRNO: Final = 4
"""Why the last system call that failed did so."""
LOST: Final = 5
"""Datagrams that `send` could not send, for another reason than a full buffer; the caller may set it to 0."""
LOST_BYTES: Final = 6
SCRATCH: Final = 8
MAX_SEGMENTS: Final = 64
"""The kernel's own limit of a run is the same or larger."""
WORDS: Final = SCRATCH + 7 + 2 + 8 + 2 * MAX_SEGMENTS

# words of a destination
TO_IP: Final = 0
"""0: the socket is connected, and sends where it is."""
TO_PORT: Final = 1
TO_PLAIN: Final = 2
"""1 where every datagram is sent by itself."""

TO_RUN_BYTES: Final = 3
"""How long a run to there may be: RUN_BYTES or SHORT_RUN_BYTES."""
SINCE_LONG: Final = 4
"""Datagrams from there since a long run arrived last, as `follow` counts them."""
TO_WORDS: Final = 5

RUN_BYTES: Final = 49000
"""Of a run, with the Ethernet, IPv4 and UDP headers of each datagram. Before a shaper (tbf) whose burst is shorter
the kernel cuts it up, packet by packet; 64 KB is a common one. Three quarters of it: while a run waits for as many
tokens the shaper's bucket may fill up, and what comes in beyond the burst until the run is let go is lost. Runs of
65,000 bytes took 3 % more time at 1 Gbit/s, on two busy cores.
"""
SHORT_RUN_BYTES: Final = 16000
"""Of a run where RUN_BYTES are too many: passes a shaper with a burst of 16 KB."""
LONG_RUNS_REMEMBERED: Final = 4096
"""Datagrams after the last long run of a sender, after which runs to it are short again."""
RECEIVE_BYTES: Final = 65536
"""The room that `receive` needs: no super-datagram is longer."""
ANCILLARY_BYTES: Final = socket.CMSG_SPACE(4)
"""The room that `socket.recvmsg` needs to say the segment size."""

READABLE: Final = 1
WRITABLE: Final = 4
_POLL_EVENTS_SHIFT: Final = 32

_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_SOL_UDP: Final = 17
_UDP_GRO: Final = 104


def words(descriptor: int) -> NDArray[np.int64]:
    """Return the state of a socket that the kernels use; the socket does not block."""
    state = np.zeros(WORDS, np.int64)
    state[DESCRIPTOR] = descriptor
    return state


def destination(ip: int = 0, port: int = 0, plain: bool = False, run_bytes: int = RUN_BYTES) -> NDArray[np.int64]:
    """Return where datagrams go: an IPv4 address as a number and a port, or to the peer of a connected socket."""
    return np.array([ip, port, plain, run_bytes, 0], np.int64)


def polled(descriptor: int, events: int = READABLE) -> int:
    """Return the word by which `wait` waits for one descriptor."""
    return descriptor | events << _POLL_EVENTS_SHIFT


def enlarge_buffers(opened: socket.socket, size: int) -> None:
    """Give a socket buffers of `size` bytes, or as much of it as the system grants."""
    for forced, plain in ((_SO_RCVBUFFORCE, socket.SO_RCVBUF), (_SO_SNDBUFFORCE, socket.SO_SNDBUF)):
        try:
            opened.setsockopt(socket.SOL_SOCKET, forced, size)
        except OSError:  # not root
            opened.setsockopt(socket.SOL_SOCKET, plain, size)


def accept_runs(opened: socket.socket) -> None:
    """Let a UDP socket receive super-datagrams; nothing happens where the kernel cannot.

    From now on every receiver must look at the segment size: a plain `recv` would take a run for one datagram.
    """
    with contextlib.suppress(OSError):
        opened.setsockopt(_SOL_UDP, _UDP_GRO, 1)


def split(run: bytes, ancillary: Sequence[tuple[int, int, bytes]]) -> list[bytes]:
    """Return the datagrams of what `socket.recvmsg` returned, in Python."""
    size = next((int.from_bytes(data, sys.byteorder) for _, kind, data in ancillary if kind == _UDP_GRO), len(run)) or 1
    return [run[start : start + size] for start in range(0, max(len(run), 1), size)]


def supported() -> bool:
    """Return whether this is a machine whose C structures the kernels know."""
    return sys.platform == "linux" and sys.byteorder == "little" and sys.maxsize > 2**32
