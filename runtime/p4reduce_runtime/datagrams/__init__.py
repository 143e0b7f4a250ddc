"""Many datagrams a system call: what compiled kernels need to use a UDP socket without Python.

Linux carries a run of datagrams of equal length through the kernel as one super-datagram: GSO segments it as late as
possible, and GRO passes datagrams that arrived in a row to the receiver as one. The kernel's 3 us a packet are then
spent once a run. The wire does not change: a receiver without GRO gets plain datagrams, and a link carries them.

`kernels.py` has the functions; this module what Python needs around them. `socket_state(descriptor)` is the state of
one socket, which the kernels also use for the structures of system calls, so that no two threads may use it at once. A
`Destination` records whether super-datagrams are refused on the path to it, and how long they may be. A shaper segments
what is longer than its burst, each datagram then costs what a run does, and the sender gets no error. So one end tries
longer runs, and the other `follow`s.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray

from p4reduce_runtime.records import Record, dtype_of, zeros

MAX_SEGMENTS: Final = 64
"""The kernel's own limit of a run is the same or larger."""


class MsgHdr(Record):
    """struct msghdr."""

    msg_name: int
    msg_namelen: int
    msg_iov: int
    msg_iovlen: int
    msg_control: int
    msg_controllen: int
    msg_flags: int


class SocketState(MsgHdr):
    """A socket, the outcome of its last calls, and memory for the structures of recvmsg and sendmsg."""

    descriptor: int
    segment: int
    """Bytes of each datagram in what was received last; its last one may be shorter."""
    sender_ip: int
    """The IPv4 address of its sender, as a number."""
    sender_port: int
    error: int
    """errno of the last system call that failed."""
    lost: int
    """Datagrams that `send` could not send, for another reason than a full buffer; the caller may set it to 0."""
    lost_bytes: int
    sin_family: Annotated[int, np.uint16]
    """The first of the four fields of a struct sockaddr_in."""
    sin_port: Annotated[int, np.uint16]
    sin_addr: Annotated[int, np.uint32]
    sin_zero: int
    cmsg_len: int
    """The first of the three fields of a struct cmsghdr; its data follow."""
    cmsg_level: Annotated[int, np.int32]
    cmsg_type: Annotated[int, np.int32]
    cmsg_data: Annotated[NDArray[np.int32], 12]
    iovec: Annotated[NDArray[np.int64], 2 * MAX_SEGMENTS]
    """struct iovec[MAX_SEGMENTS]: address and length of each."""


class Destination(Record):
    """An IPv4 address and a port as numbers, and how runs are sent there."""

    ip: int
    """0: the socket is connected, and sends to its peer."""
    port: int
    plain: int
    """1 where every datagram is sent by itself."""
    run_bytes: int
    """The maximum length of a run to there: RUN_BYTES or SHORT_RUN_BYTES."""
    since_long: int
    """Datagrams from there since the last long run arrived, as `follow` counts them."""


class PollFd(Record):
    """struct pollfd."""

    fd: Annotated[int, np.int32]
    events: Annotated[int, np.int16]
    revents: Annotated[int, np.int16]


RUN_BYTES: Final = 49000
"""Length of a run with the Ethernet, IPv4 and UDP headers of each datagram. The kernel segments a run before a shaper
(tbf) with a shorter burst; a burst of 64 KB is common. This is three quarters of it: while a run waits for tokens, the
bucket may fill up, and tokens beyond the burst are lost. Runs of 65,000 bytes took 3 % more time at 1 Gbit/s, on two
busy cores.
"""
SHORT_RUN_BYTES: Final = 16000
"""Length of a run that passes a shaper with a burst of 16 KB."""
LONG_RUNS_REMEMBERED: Final = 4096
"""Datagrams after the last long run of a sender, after which runs to it are short again."""
RECEIVE_BYTES: Final = 65536
"""Space that `receive` needs: no super-datagram is longer."""
ANCILLARY_BYTES: Final = socket.CMSG_SPACE(4)
"""Ancillary space that `socket.recvmsg` needs for the segment size."""

READABLE: Final = 1
WRITABLE: Final = 4

_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_SOL_UDP: Final = 17
_UDP_GRO: Final = 104


def socket_state(*descriptors: int) -> NDArray[np.void]:
    """Return a SocketState for the kernels for each descriptor; the sockets do not block."""
    state: NDArray[np.void] = zeros(SocketState, len(descriptors))
    state["descriptor"] = descriptors
    return state


def destination(ip: int = 0, port: int = 0, plain: bool = False, run_bytes: int = RUN_BYTES) -> NDArray[np.void]:
    """Return one Destination: an IPv4 address as a number and a port, or the peer of a connected socket."""
    to: NDArray[np.void] = zeros(Destination)
    to[0] = ip, port, plain, run_bytes, 0
    return to


def polled(descriptors: Iterable[int], events: int = READABLE) -> NDArray[np.void]:
    """Return a PollFd for each descriptor, for `wait`."""
    return np.array([(descriptor, events, 0) for descriptor in descriptors], dtype_of(PollFd))


def enlarge_buffers(opened: socket.socket, size: int) -> None:
    """Set a socket's buffers to `size` bytes, or to as many as the system allows."""
    for forced, plain in ((_SO_RCVBUFFORCE, socket.SO_RCVBUF), (_SO_SNDBUFFORCE, socket.SO_SNDBUF)):
        try:
            opened.setsockopt(socket.SOL_SOCKET, forced, size)
        except OSError:  # not root
            opened.setsockopt(socket.SOL_SOCKET, plain, size)


def accept_runs(opened: socket.socket) -> None:
    """Let a UDP socket receive super-datagrams; a kernel without UDP GRO ignores this.

    From now on every receiver must read the segment size: a plain `recv` returns a run as one datagram.
    """
    with contextlib.suppress(OSError):
        opened.setsockopt(_SOL_UDP, _UDP_GRO, 1)


def split(run: bytes, ancillary: Sequence[tuple[int, int, bytes]]) -> list[bytes]:
    """Return the datagrams of what `socket.recvmsg` returned."""
    size = next((int.from_bytes(data, sys.byteorder) for _, kind, data in ancillary if kind == _UDP_GRO), len(run)) or 1
    return [run[start : start + size] for start in range(0, max(len(run), 1), size)]


def supported() -> bool:
    """Return whether the kernels' structures are this system's: Linux on a 64-bit little-endian processor."""
    return sys.platform == "linux" and sys.byteorder == "little" and sys.maxsize > 2**32
