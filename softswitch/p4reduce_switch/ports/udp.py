"""The UDP underlay: every peer that says HELLO to the switch's socket is a port, and no root is needed.

A peer gets a port by a HELLO, and by nothing else: stray datagrams take none. A port that a multicast group of the
program names is in use, since the controller writes one for each job; it stays with its peer however long that is
silent. When all ports are taken, the others are given away: whoever joins repeats its HELLO several times a second, so
a peer without a job that is silent for a few seconds has gone.

The pipeline sees real frames: Ethernet, IPv4 and UDP headers are put around each datagram before it and taken
off after. Inside the frame the UDP destination is always the aggregation port, whatever port the socket has.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import struct
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p4reduce_contracts.errors import FrameError
from p4reduce_contracts.wire import AGGREGATION_PORT, HELLO_BYTES, internet_checksum, unpack_hello
from p4reduce_runtime import datagrams, kernels
from p4reduce_runtime.datagrams import ENCAP_BYTES
from p4reduce_runtime.logs import Sparing
from p4reduce_switch.ports import PortError, Pump, Receiver, Runs
from p4reduce_switch.pump import (
    COUNTERS,
    DATAGRAMS_IN,
    HELD_AT,
    HELD_BYTES,
    HELD_IP,
    HELD_PORT,
    HELD_SEGMENT,
    LOOP_WORDS,
    PEER_HEARD_US,
    Buffers,
    PeerTable,
    Reason,
)

_log = logging.getLogger(__name__)

SWITCH_MAC: Final = 0x020000000001
FIRST_PORT, LAST_PORT = 1, 510
JOINING_S: Final = 5.0
"""A peer in no job, silent for this long, gives up its port when a new peer finds none free."""
SEARCH_S: Final = 0.1
"""How often a port to give away is looked for: a flood of peers that find none must not keep the switch busy."""
BURST: Final = 256
SOCKET_BUFFER_BYTES: Final = 8 << 20
MAX_DATAGRAM: Final = 65535

_IPV4 = struct.Struct(">BBHHHBBH4s4s")
_UDP = struct.Struct(">HHHH")
_UDP_PROTOCOL = 17

Address = tuple[str, int]


MAX_CACHED_HEADERS: Final = 64
"""IPv4 headers kept for a peer, one for each length it sends."""


@dataclass
class UnderlayCounters:
    """What has passed through the underlay (bytes are UDP payload) and what has not."""

    datagrams_in: int = 0
    bytes_in: int = 0
    datagrams_out: int = 0
    bytes_out: int = 0
    no_hello: int = 0  # from a stranger, and not a HELLO
    no_free_port: int = 0  # a HELLO from a new peer while every port was in use
    not_for_peer: int = 0  # left the pipeline without being UDP to the port's peer
    send_buffer_full: int = 0
    send_errors: int = 0
    evicted_ports: int = 0


@dataclass
class Peer:
    """One peer address and what the headers around its datagrams need."""

    port: int
    address: Address
    ip: bytes
    ethernet: bytes
    address_sum: int  # of the IPv4 pseudo header's addresses, protocol and both UDP ports
    words: NDArray[np.int64]  # as the native loop knows it
    ip_headers: dict[int, bytes] = field(default_factory=dict)  # by total length

    def heard(self, now: float) -> None:
        """Note that a datagram of it has arrived."""
        self.words[PEER_HEARD_US] = now * 1e6

    @property
    def last_heard(self) -> float:
        """When that was."""
        return float(self.words[PEER_HEARD_US]) / 1e6


class UdpUnderlay:
    """Switch ports behind one UDP socket, one for each peer address, numbered from 1 as they first say HELLO."""

    def __init__(
        self,
        listen: Address,
        *,
        mac: int = SWITCH_MAC,
        cpu_port: int = 510,
        in_use: Callable[[], Collection[int]] = frozenset,
        runs: Runs = Runs.AUTO,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`listen` is (IPv4 address, port); `mac` the switch's own, in the frames. PortError when it cannot be had.

        `in_use` says which ports must stay with their peers.
        """
        host, number = listen
        try:
            self.ip = ipaddress.IPv4Address(host).packed
        except ValueError:
            raise PortError(f"the underlay listens on an IPv4 address, not {host!r}") from None
        if self.ip == bytes(4):
            raise PortError("the underlay needs the one address that workers send to, not 0.0.0.0")
        self.mac = mac.to_bytes(6, "big")
        self._counters = UnderlayCounters()
        self._counted_natively = np.zeros(LOOP_WORDS, np.int64)
        self._runs = False  # super-datagrams may arrive
        self._sparing = Sparing(_log, clock=clock)
        self._clock = clock
        self._in_use = in_use
        self._search_at = 0.0
        self._numbers = [number for number in range(FIRST_PORT, LAST_PORT + 1) if number != cpu_port]
        self._table = PeerTable(plain=runs is Runs.OFF)
        self._peers: dict[Address, Peer] = {}
        self._by_port: dict[int, Peer] = {}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        datagrams.enlarge_buffers(self._socket, SOCKET_BUFFER_BYTES)
        try:
            self._socket.bind((host, number))
        except OSError as error:
            self._socket.close()
            raise PortError(
                f"cannot listen on UDP {host}:{number}: {error.strerror}; is another switch running, "
                "or is the address not this machine's? Choose another with --listen"
            ) from error
        self.address: Address = self._socket.getsockname()

    @property
    def counters(self) -> UnderlayCounters:
        """What has been counted until now, in Python and by the native loop."""
        counted = zip(COUNTERS, self._counted_natively[DATAGRAMS_IN:].tolist(), strict=True)
        return replace(self._counters, **{name: getattr(self._counters, name) + number for name, number in counted})

    @property
    def peers(self) -> int:
        """How many peers have a port."""
        return len(self._peers)

    def filenos(self) -> list[int]:
        return [self._socket.fileno()]

    def drain(self, fileno: int, receive: Receiver) -> None:
        for _ in range(BURST):
            try:
                payloads, address = self._receive()
            except BlockingIOError:
                return
            except ConnectionError:  # an ICMP answer to an earlier datagram: its peer is gone
                continue
            for payload in payloads:
                self._take(address, payload, receive)

    def _receive(self) -> tuple[list[bytes], Address]:
        """Return the datagrams that one sender sent in a row."""
        if not self._runs:
            payload, address = self._socket.recvfrom(MAX_DATAGRAM)
            return [payload], address
        payload, ancillary, _, address = self._socket.recvmsg(datagrams.RECEIVE_BYTES, datagrams.ANCILLARY_BYTES)
        return datagrams.split(payload, ancillary), address

    def _take(self, address: Address, payload: bytes, receive: Receiver) -> None:
        """Hand over one datagram, if its sender is a peer or becomes one by it."""
        peer = self._peers.get(address) or self._admit(address, payload)
        if peer is not None:
            peer.heard(self._clock())
            self._counters.datagrams_in += 1
            self._counters.bytes_in += len(payload)
            receive(peer.port, self.wrap(peer, payload))

    def pump(self, wake: int) -> Pump | None:
        compiled = kernels.load("p4reduce_switch.pump.udp_kernels") if datagrams.supported() else None
        if compiled is None:
            return None
        self._runs = True
        datagrams.accept_runs(self._socket)
        loop = UdpPump(compiled, self._socket.fileno(), wake, self._table, self._take)
        self._counted_natively = loop.buffers.loop
        return loop

    def send(self, port: int, frame: bytes) -> bool:
        peer = self._by_port.get(port)
        if peer is None:
            return False
        payload = self._unwrap(peer, frame)
        if payload is None:
            self._counters.not_for_peer += 1
            return True
        try:
            self._socket.sendto(payload, peer.address)
        except BlockingIOError:
            self._counters.send_buffer_full += 1
        except OSError:  # the peer is gone, or the datagram too long: lost, as on a wire
            self._counters.send_errors += 1
        else:
            self._counters.datagrams_out += 1
            self._counters.bytes_out += len(payload)
        return True

    def close(self) -> None:
        self._socket.close()

    def wrap(self, peer: Peer, payload: bytes) -> bytes:
        """The frame around a peer's datagram, with right lengths and checksums."""
        udp_bytes = 8 + len(payload)
        header = peer.ip_headers.get(udp_bytes) or self._ip_header(peer, udp_bytes)
        padded = payload if len(payload) % 2 == 0 else payload + b"\0"
        total = peer.address_sum + 2 * udp_bytes + int.from_bytes(padded, "big")
        checksum = 0xFFFF - total % 0xFFFF  # as `internet_checksum`, with UDP's 0xFFFF in the place of 0
        return header + _UDP.pack(peer.address[1], AGGREGATION_PORT, udp_bytes, checksum) + payload

    def _unwrap(self, peer: Peer, frame: bytes) -> bytes | None:
        """The payload of a frame to this peer: IPv4 without options, UDP, whole; None for anything else."""
        if len(frame) < ENCAP_BYTES or frame[12:15] != b"\x08\0\x45" or frame[23] != _UDP_PROTOCOL:
            return None
        end = 34 + int.from_bytes(frame[38:40], "big")
        if not ENCAP_BYTES <= end <= len(frame):
            return None
        if frame[30:34] != peer.ip or int.from_bytes(frame[36:38], "big") != peer.address[1]:
            return None
        return frame[ENCAP_BYTES:end]

    def _ip_fields(self, ip: bytes, total_bytes: int) -> list[Any]:
        """The IPv4 header of a datagram from there; its checksum is 0."""
        return [0x45, 0, total_bytes, 0, 0x4000, 64, _UDP_PROTOCOL, 0, ip, self.ip]

    def _ip_header(self, peer: Peer, udp_bytes: int) -> bytes:
        fields = self._ip_fields(peer.ip, 20 + udp_bytes)
        fields[7] = internet_checksum(_IPV4.pack(*fields))
        if len(peer.ip_headers) >= MAX_CACHED_HEADERS:
            peer.ip_headers.clear()
        header = peer.ip_headers[udp_bytes] = peer.ethernet + _IPV4.pack(*fields)
        return header

    def _admit(self, address: Address, payload: bytes) -> Peer | None:
        """Give a new peer that says HELLO a port; None (and counted) if it does not, or there is none."""
        if not _is_hello(payload):
            self._counters.no_hello += 1
            self._refused("no HELLO", address)
            return None
        now = self._clock()
        port = next((number for number in self._numbers if number not in self._by_port), None) or self._take_back(now)
        if port is None:
            self._counters.no_free_port += 1
            self._refused("no free port", address)
            return None
        ip = ipaddress.IPv4Address(address[0]).packed
        mac = b"\x06\0" + ip  # locally administered
        address_sum = int.from_bytes(ip + self.ip, "big") + _UDP_PROTOCOL + address[1] + AGGREGATION_PORT
        ethernet, ip_header = self.mac + mac + b"\x08\0", _IPV4.pack(*self._ip_fields(ip, 0))
        header = ethernet + ip_header + _UDP.pack(address[1], AGGREGATION_PORT, 0, 0)
        ip_sum = int.from_bytes(ip_header, "big") % 0xFFFF
        words = self._table.add(port, int.from_bytes(ip, "big"), address[1], header, ip_sum, address_sum % 0xFFFF)
        peer = Peer(port, address, ip, ethernet, address_sum, words)
        peer.heard(now)
        self._peers[address] = self._by_port[port] = peer
        self._sparing.event(logging.INFO, "port given", port=port, peer=_spelt(address))
        return peer

    def _refused(self, reason: str, address: Address) -> None:
        """Log that a datagram was refused, once in a while for each reason."""
        self._sparing.event(logging.INFO, "datagram refused", reason, reason=reason, peer=_spelt(address))

    def _take_back(self, now: float) -> int | None:
        """Take the port of the peer that is silent for longest and in no job; None if all may be needed."""
        if now < self._search_at:
            return None
        in_use = self._in_use()
        gone = (peer for peer in self._by_port.values() if peer.port not in in_use)
        peer = min(gone, key=lambda one: one.last_heard, default=None)
        if peer is None or now - peer.last_heard <= JOINING_S:
            self._search_at = now + SEARCH_S
            return None
        self._counters.evicted_ports += 1
        silent_s = round(now - peer.last_heard, 1)
        self._sparing.event(logging.INFO, "port evicted", port=peer.port, peer=_spelt(peer.address), silent_s=silent_s)
        del self._peers[peer.address], self._by_port[peer.port]
        self._table.remove(peer.port)
        return peer.port


class UdpPump:
    """The underlay's native loop: see `p4reduce_switch.pump`."""

    def __init__(
        self,
        compiled: Any,
        descriptor: int,
        wake: int,
        table: PeerTable,
        take: Callable[[Address, bytes, Receiver], None],
    ) -> None:
        self.buffers = Buffers()
        self._io = datagrams.words(descriptor)
        self._polled = np.array([datagrams.polled(descriptor), datagrams.polled(wake)])
        self._turn, self._table, self._take = compiled.turn, table, take

    def turn(self, lock: NDArray[np.int64]) -> Reason:
        buffers, table = self.buffers, self._table
        return Reason(
            self._turn(
                buffers.loop,
                buffers.words,
                self._io,
                self._polled,
                lock,
                table.peers,
                table.headers,
                table.table,
                buffers.received,
                buffers.frames,
                buffers.frame_table,
                buffers.results,
                buffers.result_table,
                buffers.order,
            )
        )

    def take_held(self, receive: Receiver) -> None:
        loop = self.buffers.loop
        address = str(ipaddress.IPv4Address(int(loop[HELD_IP]))), int(loop[HELD_PORT])
        while loop[HELD_AT] >= 0:
            start, size = int(loop[HELD_AT]), int(loop[HELD_BYTES])
            end = min(start + int(loop[HELD_SEGMENT]), size)
            loop[HELD_AT] = end if end < size else -1
            self._take(address, self.buffers.received[start:end].tobytes(), receive)


def _spelt(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


def _is_hello(payload: bytes) -> bool:
    if len(payload) != HELLO_BYTES:
        return False
    try:
        unpack_hello(payload)
    except FrameError:
        return False
    return True
