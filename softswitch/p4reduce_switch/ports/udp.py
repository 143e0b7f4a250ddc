"""The UDP underlay: each peer that sends a HELLO to the switch's socket gets a port; no root is needed.

Other datagrams of unknown peers are dropped. A port in a multicast group of the program is in use, since the controller
writes a group for each job, and is not evicted however long its peer sends nothing. When all ports are assigned, a port
not in use is evicted: a joining worker repeats its HELLO several times a second, so a peer without a job that sends
nothing for a few seconds has left.

The uplink, to a parent switch, is a peer from the beginning: its port is UPLINK_PORT, and it is not evicted.

The pipeline processes Ethernet frames: each datagram gets Ethernet, IPv4 and UDP headers before it, and loses them
afterwards. Inside the frame the UDP destination is always the aggregation port, whatever port the socket has.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import itertools
import logging
import socket
import struct
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from p4reduce_runtime import datagrams
from p4reduce_runtime.datagrams import PollFd, SocketState
from p4reduce_runtime.logs import RateLimitedLog
from p4reduce_runtime.records import Table, zeros
from p4reduce_runtime.underlay import AGGREGATION_PORT, GROUP_AT, NUMBER_AT, NUMBERS_TOGETHER, UPLINK_PORT, is_hello
from p4reduce_switch.datapath import BatchProgram, PeerTable, UdpCounters, UdpSocket
from p4reduce_switch.ports import DatapathLoop, Gso, PortError

_log = logging.getLogger(__name__)

SWITCH_MAC: Final = 0x020000000001
FIRST_PORT, LAST_PORT = 1, 510
EVICT_AFTER_S: Final = 5.0
"""A peer without a job that has sent nothing for this long loses its port when a new peer needs one."""
EVICTION_RETRY_S: Final = 0.1
"""The interval of searches for a port to evict, so that a flood of new peers does not load the switch."""
SOCKET_BUFFER_BYTES: Final = 8 << 20

_IPV4 = struct.Struct(">BBHHHBBH4s4s")
_UDP = struct.Struct(">HHHH")
_UDP_PROTOCOL = 17
_ATTACH_FILTER = 51  # SO_ATTACH_REUSEPORT_CBPF
_LOAD_8, _LOAD_16, _TO_X, _DIVIDE, _ADD_X, _MODULO, _RETURN_A = 0x30, 0x28, 0x07, 0x34, 0x0C, 0x94, 0x16  # classic BPF

Address = tuple[str, int]


@dataclass
class UnderlayCounters:
    """Counters of forwarded and dropped datagrams; bytes are UDP payload."""

    datagrams_in: int = 0
    bytes_in: int = 0
    datagrams_out: int = 0
    bytes_out: int = 0
    no_hello: int = 0  # from an unknown peer, and not a HELLO
    no_free_port: int = 0  # a HELLO of a new peer while all ports were in use
    not_for_peer: int = 0  # sent by the pipeline, but not UDP to the port's peer
    send_buffer_full: int = 0
    send_errors: int = 0
    evicted_ports: int = 0


@dataclass
class Peer:
    """A peer's address and port."""

    port: int
    address: Address
    state: np.void  # its PeerState, which the native loop writes too

    def seen(self, now: float) -> None:
        """Record the time of a datagram."""
        self.state["last_seen_us"] = now * 1e6

    @property
    def last_seen(self) -> float:
        """When the last datagram arrived, in seconds."""
        return float(self.state["last_seen_us"]) / 1e6


class UdpUnderlay:
    """Switch ports behind one UDP socket, one for each peer address, numbered from 1 in the order of HELLOs."""

    recorder = None

    def __init__(
        self,
        listen: Address,
        *,
        uplink: Address | None = None,
        cpu_port: int | None = 510,
        in_use: Callable[[], Collection[int]] = frozenset,
        gso: Gso = Gso.AUTO,
        clock: Callable[[], float] = time.monotonic,
        threads: int = 1,
    ) -> None:
        """`listen` is (IPv4 address, port); `uplink` the address of the parent switch; `threads` have a socket each.

        `in_use` returns the ports that must not be evicted. PortError when the socket cannot be bound, or the uplink
        cannot be used with it.
        """
        host, number = listen
        try:
            self.ip = ipaddress.IPv4Address(host).packed
        except ValueError:
            raise PortError(f"the underlay listens on an IPv4 address, not {host!r}") from None
        if self.ip == bytes(4):
            raise PortError("the underlay needs the one address that workers send to, not 0.0.0.0")
        self.full: set[int] = set()
        self._outgoing: list[tuple[int, bytes]] = []
        self._counters = UnderlayCounters()
        self._native_counters: NDArray[np.void] = zeros(UdpCounters, threads)
        self._rate_limited_log = RateLimitedLog(_log, clock=clock)
        self._clock = clock
        self._in_use = in_use
        self._next_eviction = 0.0
        self._numbers = [number for number in range(FIRST_PORT, LAST_PORT + 1) if number != cpu_port]
        self._table = PeerTable(plain=gso is Gso.OFF)
        self._peers: dict[Address, Peer] = {}
        self._by_port: dict[int, Peer] = {}
        try:
            self._sockets = _bound((host, number), threads)
        except OSError as error:
            raise PortError(
                f"cannot listen on UDP {host}:{number}: {error.strerror}; is another switch running, "
                "or is the address not this machine's? Choose another with --listen"
            ) from error
        self.address: Address = self._sockets[0].getsockname()
        self.uplink = uplink
        if uplink is not None:
            try:
                self._check_uplink(uplink, cpu_port)
            except PortError:
                self.close()
                raise
            self._add_peer(UPLINK_PORT, uplink)

    @property
    def counters(self) -> UnderlayCounters:
        native = self._native_counters
        return replace(self._counters, **{name: int(native[name].sum()) for name in native.dtype.names or ()})

    @property
    def peers(self) -> int:
        """The number of peers."""
        return len(self._peers)

    @functools.cached_property
    def _loop(self) -> UdpLoop:
        rows = [self._native_counters[row : row + 1] for row in range(len(self._sockets))]
        loop, *loop.helpers = [
            UdpLoop(opened, row, self._table, self._admit_peer) for opened, row in zip(self._sockets, rows, strict=True)
        ]
        for opened in self._sockets:
            datagrams.accept_runs(opened)
        loop.share(None, 0)
        return loop

    def datapath_loop(self, wake: int) -> DatapathLoop:
        self._loop.wake_by(wake)
        return self._loop

    def send(self, port: int, frame: bytes) -> bool:
        known = port in self._by_port
        if known:
            self._outgoing.append((port, frame))
        return known

    def flush(self) -> None:
        if self._outgoing:
            frames, self._outgoing = self._outgoing, []
            self._loop.send(frames)

    def wait_when_full(self, wait: bool) -> None:
        """No frame waits for room: on loopback datagrams are lost, not held up."""

    def close(self) -> None:
        for opened in self._sockets:
            opened.close()

    def _check_uplink(self, uplink: Address, cpu_port: int | None) -> None:
        """Raise PortError for a parent switch whose frames would not arrive, or arrive at no port."""
        host, number = uplink
        try:
            ip = ipaddress.IPv4Address(host)
        except ValueError:
            raise PortError(f"the uplink is the IPv4 address and port of the parent switch, not {host!r}") from None
        if ip.is_unspecified or ip.is_multicast or number == 0:
            raise PortError(f"the uplink needs the address that the parent switch listens on, not {_text(uplink)}")
        if cpu_port == UPLINK_PORT:
            raise PortError(f"port {UPLINK_PORT} is the uplink's: choose another with --cpu-port")
        if uplink == self.address:
            raise PortError(f"the uplink {_text(uplink)} is this switch's own address: name the parent's")
        if ip.packed == self.ip and AGGREGATION_PORT in (number, self.address[1]):
            raise PortError(
                f"this switch ({_text(self.address)}) and its parent ({_text(uplink)}) share an IP address, so neither "
                f"may use UDP port {AGGREGATION_PORT}: the switch program drops what comes from its own address and "
                "that port as spoofed. Choose other ports with --listen"
            )

    def _admit_peer(self, address: Address, payload: bytes) -> bool:
        """Assign a port to a new peer that sent a HELLO; False, and counted, if it did not or no port is free."""
        if not is_hello(payload):
            self._counters.no_hello += 1
            self._refused("no HELLO", address)
            return False
        now = self._clock()
        port = next((number for number in self._numbers if number not in self._by_port), None) or self._evict_peer(now)
        if port is None:
            self._counters.no_free_port += 1
            self._refused("no free port", address)
            return False
        peer = self._add_peer(port, address)
        peer.seen(now)
        self._rate_limited_log.event(logging.INFO, "port given", port=port, peer=_text(address))
        return True

    def _add_peer(self, port: int, address: Address) -> Peer:
        ip = ipaddress.IPv4Address(address[0]).packed
        mac = b"\x06\0" + ip  # locally administered
        ip_header = _IPV4.pack(0x45, 0, 0, 0, 0x4000, 64, _UDP_PROTOCOL, 0, ip, self.ip)
        header = (
            SWITCH_MAC.to_bytes(6, "big") + mac + b"\x08\0" + ip_header + _UDP.pack(address[1], AGGREGATION_PORT, 0, 0)
        )
        ip_sum = int.from_bytes(ip_header, "big") % 0xFFFF
        state = self._table.add(port, int.from_bytes(ip, "big"), address[1], header, ip_sum)
        peer = self._peers[address] = self._by_port[port] = Peer(port, address, state)
        return peer

    def _refused(self, reason: str, address: Address) -> None:
        """Log a refused datagram, rate-limited for each reason."""
        self._rate_limited_log.event(logging.INFO, "datagram refused", reason, reason=reason, peer=_text(address))

    def _evict_peer(self, now: float) -> int | None:
        """Evict the peer without a job whose last datagram is oldest, and return its port; None if there is none."""
        if now < self._next_eviction:
            return None
        in_use = self._in_use()
        evictable = (peer for port, peer in self._by_port.items() if port not in in_use and port != UPLINK_PORT)
        peer = min(evictable, key=lambda one: one.last_seen, default=None)
        if peer is None or now - peer.last_seen <= EVICT_AFTER_S:
            self._next_eviction = now + EVICTION_RETRY_S
            return None
        self._counters.evicted_ports += 1
        silent_s = round(now - peer.last_seen, 1)
        self._rate_limited_log.event(
            logging.INFO, "port evicted", port=peer.port, peer=_text(peer.address), silent_s=silent_s
        )
        del self._peers[peer.address], self._by_port[peer.port]
        self._table.remove(peer.port)
        return peer.port


class UdpLoop(DatapathLoop):
    """The underlay's native loop: see `p4reduce_switch.datapath`."""

    def __init__(
        self,
        opened: socket.socket,
        counters: NDArray[np.void],
        table: PeerTable,
        admit: Callable[[Address, bytes], bool],
    ) -> None:
        """`admit` makes the sender of a datagram a peer, or returns False."""
        polled = datagrams.polled([opened.fileno(), -1])
        shared = UdpSocket(
            io=cast(Table[SocketState], datagrams.socket_state(opened.fileno())),
            polled=cast(Table[PollFd], polled),
            counters=cast(Table[UdpCounters], counters),
        )
        super().__init__("p4reduce_switch.datapath.udp_kernels", polled, table.peers, shared)
        self._admit = admit
        self._socket, self._parts = opened, 0

    def share(self, program: BatchProgram | None, installed_us: int) -> None:
        native = None if program is None else program.batch
        threads = getattr(native, "threads", ())
        for helper, thread in itertools.zip_longest(self.helpers, threads):
            if thread is None:
                helper.buffers.bind(None, installed_us)
            else:
                thread.refresh()
                helper.buffers.bind(native, installed_us, thread.words)
        if self.helpers and self._parts != 1 + len(threads):
            self._parts = 1 + len(threads)
            _divide(self._socket, self._parts)

    def admit_pending(self) -> None:
        state = self.buffers.state
        address = str(ipaddress.IPv4Address(int(state["pending_ip"]))), int(state["pending_port"])
        while state["pending_at"] >= 0:
            start, size = int(state["pending_at"]), int(state["pending_bytes"])
            end = min(start + int(state["pending_segment"]), size)
            if self._admit(address, self.buffers.pending(end)[start:]):
                return
            state["pending_at"] = end if end < size else -1


def _bound(address: Address, count: int) -> list[socket.socket]:
    """Return so many sockets with one address. OSError if another socket has it."""
    with contextlib.ExitStack() as stack:
        if count > 1:  # those below would share the address with another switch's
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as alone:
                alone.bind(address)
                address = alone.getsockname()
        sockets = []
        for _ in range(count):
            opened = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK))
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, count > 1)
            datagrams.enlarge_buffers(opened, SOCKET_BUFFER_BYTES)
            opened.bind(address)
            sockets.append(opened)
        if count > 1:
            _divide(sockets[0], 1)  # from now on nothing comes to a socket that another process adds
        stack.pop_all()
        return sockets


def _divide(opened: socket.socket, parts: int) -> None:
    """Have the sockets of an address receive by the payload's group and number: those of a number meet in one.

    That is only for speed. A super-datagram goes by its first frame, anything shorter to the first socket.
    """
    by_group = (_LOAD_8, GROUP_AT), (_TO_X, 0)
    by_number = (_LOAD_16, NUMBER_AT), (_DIVIDE, NUMBERS_TOGETHER)
    steps = (*by_group, *by_number, (_ADD_X, 0), (_MODULO, parts), (_RETURN_A, 0))
    code = b"".join(struct.pack("HBBI", what, 0, 0, number) for what, number in steps)
    kept = np.frombuffer(code, np.uint8)
    try:
        opened.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HP", len(steps), kept.ctypes.data))
    except OSError as error:
        raise PortError(f"the frames cannot be divided among threads: {error.strerror}; use --threads 1") from error


def _text(address: Address) -> str:
    return f"{address[0]}:{address[1]}"
