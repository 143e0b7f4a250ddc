"""The UDP underlay: every peer that sends to the switch's socket is a port, and no root is needed.

The pipeline sees real frames: Ethernet, IPv4 and UDP headers are put around each datagram before it and taken
off after. Inside the frame the UDP destination is always the aggregation port, whatever port the socket has.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from . import PortError, Receiver

AGGREGATION_PORT: Final = 21072
FIRST_PORT, LAST_PORT = 1, 509
IDLE_S: Final = 60.0
"""A peer silent for this long gives up its port, when a new peer finds none free."""
BURST: Final = 256
SOCKET_BUFFER_BYTES: Final = 8 << 20
MAX_DATAGRAM: Final = 65535

_IPV4 = struct.Struct(">BBHHHBBH4s4s")
_UDP = struct.Struct(">HHHH")
_HEADERS_BYTES = 14 + 20 + 8
_UDP_PROTOCOL = 17

Address = tuple[str, int]


@dataclass
class UnderlayCounters:
    """Datagrams that did not make it through the underlay."""

    no_free_port: int = 0  # from a new peer while every port was in use
    not_for_peer: int = 0  # left the pipeline addressed to someone else than the port's peer
    send_buffer_full: int = 0
    evicted_ports: int = 0


@dataclass
class Peer:
    """One peer address and what the headers around its datagrams need."""

    port: int
    address: Address
    ip: bytes
    ethernet: bytes
    address_sum: int  # of the IPv4 pseudo header's addresses, protocol and both UDP ports
    last_heard: float
    ip_headers: dict[int, bytes] = field(default_factory=dict)  # by total length


class UdpUnderlay:
    """Switch ports behind one UDP socket, one for each peer address, numbered from 1 as they first appear."""

    def __init__(
        self, listen: Address, mac: int = 0x020000000001, clock: Callable[[], float] = time.monotonic
    ) -> None:
        host, number = listen
        try:
            self.ip = ipaddress.IPv4Address(host).packed
        except ValueError:
            raise PortError(f"the underlay listens on an IPv4 address, not {host!r}") from None
        if self.ip == bytes(4):
            raise PortError("the underlay needs the one address that workers send to, not 0.0.0.0")
        self.mac = mac.to_bytes(6, "big")
        self.counters = UnderlayCounters()
        self._clock = clock
        self._peers: dict[Address, Peer] = {}
        self._by_port: dict[int, Peer] = {}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            self._socket.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)
        try:
            self._socket.bind((host, number))
        except OSError as error:
            self._socket.close()
            raise PortError(
                f"cannot listen on UDP {host}:{number}: {error.strerror}; is another switch running, "
                "or is the address not this machine's? Choose another with --listen"
            ) from error
        self.address: Address = self._socket.getsockname()

    def filenos(self) -> list[int]:
        return [self._socket.fileno()]

    def drain(self, fileno: int, receive: Receiver) -> None:
        recvfrom = self._socket.recvfrom
        for _ in range(BURST):
            try:
                payload, address = recvfrom(MAX_DATAGRAM)
            except BlockingIOError:
                return
            except ConnectionError:  # an ICMP answer to an earlier datagram: its peer is gone
                continue
            peer = self._peers.get(address) or self._admit(address)
            if peer is not None:
                peer.last_heard = self._clock()
                receive(peer.port, self.wrap(peer, payload))

    def send(self, port: int, frame: bytes) -> bool:
        peer = self._by_port.get(port)
        if peer is None:
            return False
        is_udp = frame[12:14] == b"\x08\0" and frame[14] == 0x45 and frame[23] == _UDP_PROTOCOL
        if not is_udp or frame[30:34] != peer.ip or int.from_bytes(frame[36:38], "big") != peer.address[1]:
            self.counters.not_for_peer += 1
            return True
        end = 34 + int.from_bytes(frame[38:40], "big")
        try:
            self._socket.sendto(frame[_HEADERS_BYTES:end], peer.address)
        except BlockingIOError:
            self.counters.send_buffer_full += 1
        except ConnectionError:
            pass  # as in drain; the worker's own timers deal with a lost frame
        return True

    def close(self) -> None:
        self._socket.close()

    def wrap(self, peer: Peer, payload: bytes) -> bytes:
        """The frame around a peer's datagram, with right lengths and checksums."""
        udp_bytes = 8 + len(payload)
        header = peer.ip_headers.get(udp_bytes) or self._ip_header(peer, udp_bytes)
        padded = payload if len(payload) % 2 == 0 else payload + b"\0"
        total = peer.address_sum + 2 * udp_bytes + int.from_bytes(padded, "big")
        checksum = 0xFFFF - total % 0xFFFF  # a sum modulo 2^16 - 1 is the one's complement sum; never 0 here
        return header + _UDP.pack(peer.address[1], AGGREGATION_PORT, udp_bytes, checksum) + payload

    def _ip_header(self, peer: Peer, udp_bytes: int) -> bytes:
        fields = [0x45, 0, 20 + udp_bytes, 0, 0x4000, 64, _UDP_PROTOCOL, 0, peer.ip, self.ip]
        fields[7] = 0xFFFF - int.from_bytes(_IPV4.pack(*fields), "big") % 0xFFFF
        header = peer.ip_headers[udp_bytes] = peer.ethernet + _IPV4.pack(*fields)
        return header

    def _admit(self, address: Address) -> Peer | None:
        """Give a new peer a port; None (and counted) if there is none."""
        port = next(
            (number for number in range(FIRST_PORT, LAST_PORT + 1) if number not in self._by_port), None
        )
        now = self._clock()
        if port is None:
            idlest = min(self._by_port.values(), key=lambda peer: peer.last_heard)
            if now - idlest.last_heard < IDLE_S:
                self.counters.no_free_port += 1
                return None
            self.counters.evicted_ports += 1
            del self._peers[idlest.address]
            port = idlest.port
        ip = ipaddress.IPv4Address(address[0]).packed
        mac = b"\x06\0" + ip  # locally administered
        address_sum = int.from_bytes(ip + self.ip, "big") + _UDP_PROTOCOL + address[1] + AGGREGATION_PORT
        peer = Peer(port, address, ip, self.mac + mac + b"\x08\0", address_sum, now)
        self._peers[address] = self._by_port[port] = peer
        return peer
