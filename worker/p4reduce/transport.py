"""Datagrams to and from the switches."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from p4reduce.protocol.datagram import Datagram, switch_of
from p4reduce_runtime import datagrams

BUFFER_BYTES: Final = 8 << 20
"""Bytes of the buffer of each direction of the socket, where the system grants it."""
_BURST: Final = 128
_DATAGRAM_BYTES: Final = 65535
"""Bytes of the longest datagram that UDP can carry: a frame that is cut off would look like a malformed one."""
_SEND_WAIT_MS: Final = 50
_IP_MTU_DISCOVER: Final = 10
_IP_PMTUDISC_DO: Final = 2
_IP_MTU: Final = 14
_SOL_UDP: Final = 17
_UDP_SEGMENT: Final = 103


class Transport(Protocol):
    """Carries datagrams to and from the switches of a lease (datagram.py); may lose, repeat and reorder them."""

    def send(self, frames: Iterable[bytes]) -> None: ...

    def receive(self, timeout_s: float) -> list[bytes]:
        """Wait up to `timeout_s` for a datagram; return it and whatever else has arrived."""
        ...

    def close(self) -> None: ...


def sockets_of(transport: Transport) -> tuple[UdpTransport, ...]:
    """Return the UDP sockets of a transport, one for each switch of the lease; none where it has other means."""
    if isinstance(transport, SideBySide):
        return transport.sockets
    return (transport,) if isinstance(transport, UdpTransport) else ()


def _received(drain: Callable[[], list[bytes]], readable: select.poll, timeout_s: float) -> list[bytes]:
    """Return what `drain` finds, after a wait of up to `timeout_s` for a descriptor where it finds nothing at once."""
    frames = drain()
    if not frames and timeout_s > 0:
        readable.poll(timeout_s * 1000)
        frames = drain()
    return frames


class UdpTransport:
    """A UDP socket connected to one switch. Errors of the socket count as loss."""

    def __init__(self, host: str, port: int) -> None:
        family, socket_type, proto, _, address = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_DGRAM)[0]
        self._socket = socket.socket(family, socket_type, proto)
        try:
            datagrams.enlarge_buffers(self._socket, BUFFER_BYTES)
            self._socket.setblocking(False)
            if datagrams.supported():
                datagrams.accept_runs(self._socket)
            self._socket.connect(address)
        except OSError:
            self._socket.close()
            raise
        self.longest_run = 0
        """Bytes of payload in the longest run that `receive` has returned, or in the longest datagram."""
        self._readable = select.poll()
        self._readable.register(self._socket, select.POLLIN)
        self._writable = select.poll()
        self._writable.register(self._socket, select.POLLOUT)

    @property
    def address(self) -> tuple[str, int]:
        """The socket's own address, which the switch admits."""
        host, port = self._socket.getsockname()[:2]
        return host, port

    @property
    def buffer_bytes(self) -> tuple[int, int]:
        """The buffers that the system granted, to receive and to send; it counts each twice, for its own needs."""
        receive, send = (self._socket.getsockopt(socket.SOL_SOCKET, it) for it in (socket.SO_RCVBUF, socket.SO_SNDBUF))
        return receive // 2, send // 2

    @property
    def path_mtu(self) -> int:
        """The longest packet towards the switch, as far as the system has measured it; with IP and UDP header."""
        return self._socket.getsockopt(socket.IPPROTO_IP, _IP_MTU)

    @property
    def descriptor(self) -> int:
        """The socket's own, for the compiled loop; -1 once it is closed."""
        return self._socket.fileno()

    def forbid_fragments(self) -> None:
        """Let a datagram that is too long for the path be lost from now on, instead of cut up on its way."""
        self._socket.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)

    def send(self, frames: Iterable[bytes]) -> None:
        send = self._socket.send
        for frame in frames:
            try:
                send(frame)
            except BlockingIOError:
                self._writable.poll(_SEND_WAIT_MS)
                with contextlib.suppress(OSError):
                    send(frame)
            except OSError:
                continue  # port closed or no route yet: the same as loss

    def send_run(self, frames: Sequence[bytes]) -> bool:
        """Send frames of equal length as one; return False where the system, or the interface, refuses that."""
        size = len(frames[0]).to_bytes(2, sys.byteorder)
        try:
            self._socket.sendmsg(frames, [(_SOL_UDP, _UDP_SEGMENT, size)])
        except BlockingIOError:
            pass  # the same as loss
        except OSError as error:
            return error.errno == errno.ECONNREFUSED
        return True

    def receive(self, timeout_s: float) -> list[bytes]:
        return _received(self._drain, self._readable, timeout_s)

    def _drain(self) -> list[bytes]:
        receive, frames = self._socket.recvmsg, list[bytes]()
        try:
            while len(frames) < _BURST:
                run, ancillary, _, _ = receive(_DATAGRAM_BYTES, datagrams.ANCILLARY_BYTES)
                frames += datagrams.split(run, ancillary)
                self.longest_run = max(self.longest_run, len(run))
        except OSError:
            pass  # drained, or the peer's port was closed: either way nothing more is here
        return frames

    def close(self) -> None:
        self._socket.close()


class SideBySide:
    """UDP sockets connected to the switches of a lease, in its order, as one transport."""

    def __init__(self, sockets: Sequence[UdpTransport]) -> None:
        self.sockets = tuple(sockets)
        self._readable = select.poll()
        for one in self.sockets:
            self._readable.register(one.descriptor, select.POLLIN)

    def send(self, frames: Iterable[bytes]) -> None:
        for frame in frames:
            self.sockets[switch_of(frame)].send((frame,))

    def receive(self, timeout_s: float) -> list[bytes]:
        return _received(self._drain, self._readable, timeout_s)

    def _drain(self) -> list[bytes]:
        return [Datagram(frame, number) for number, one in enumerate(self.sockets) for frame in one.receive(0.0)]

    def close(self) -> None:
        for one in self.sockets:
            one.close()
