"""Linux interfaces as switch ports, over AF_PACKET: `-i 1@veth1`, spelled as BMv2 spells it."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import re
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from p4reduce_runtime import datagrams
from p4reduce_runtime.datagrams import READABLE, WRITABLE, PollFd
from p4reduce_runtime.records import Table, zeros
from p4reduce_runtime.threads import DaemonThread
from p4reduce_switch.datapath.ethernet import Interface, Interfaces, PacketIo
from p4reduce_switch.ports import DatapathLoop, Gso, PortError, Receiver
from p4reduce_switch.program.packet import MAX_PORT

SOCKET_BUFFER_BYTES: Final = 8 << 20
OUTPUT_FRAMES: Final = 130
"""simple_switch's output buffer has 128 frames; the thread that sends and the one that fills it hold one each."""
_ETH_P_ALL = 0x0003
_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, _PACKET_MR_PROMISC = 263, 1, 1
_PACKET_VNET_HDR, _PACKET_IGNORE_OUTGOING = 15, 23
_SIOCGIFFLAGS, _SIOCGIFMTU = 0x8913, 0x8921
_IFF_RUNNING = 0x40
"""Linux sets it while operstate (RFC 2863) is `up`, or `unknown`: drivers without link detection, such as loopback."""

LINK_INTERVAL_S = 0.25


def parse_interface(text: str) -> tuple[int, str]:
    """(port, interface) of "1@veth1"."""
    match = re.fullmatch(r"(\d+)@([^\s/@]{1,15})", text)
    if match is None or int(match[1]) > MAX_PORT:
        raise PortError(f"an interface is given as PORT@NAME with PORT 0..{MAX_PORT}, such as 1@veth1, not {text!r}")
    return int(match[1]), match[2]


@dataclass
class InterfaceCounters:
    """Counters of one interface."""

    frames_in: int = 0
    bytes_in: int = 0
    frames_out: int = 0
    bytes_out: int = 0
    send_errors: int = 0


class EthernetPorts:
    """Interfaces as ports, with an AF_PACKET socket each.

    Where an interface is slower than the frames for it (`tc` limits it), BMv2's send waits once the socket's buffer is
    full, its output buffer fills, and then the egress queue of the port: that is how programs see a queue. Here each
    port has an output buffer of its own, so that a slow one does not hold up the others.
    """

    recorder: Receiver | None = None

    def __init__(self, interfaces: dict[int, str], gso: Gso = Gso.AUTO) -> None:
        self._sockets: dict[int, socket.socket] = {}
        self._names = interfaces
        self._waiting: dict[int, deque[bytes]] = {}
        self._waits = False
        self._outgoing: list[tuple[int, bytes]] = []
        self.full: set[int] = set()
        self._rows: NDArray[np.void] = zeros(Interface, len(interfaces))
        self._native: dict[int, np.void] = dict(zip(interfaces, self._rows, strict=True))
        try:
            for port, name in interfaces.items():
                self._sockets[port] = opened = _open(name)
                row = self._native[port]
                row["descriptor"], row["port"], row["gso_allowed"] = opened.fileno(), port, gso
                row["max_frame"] = _longest_frame(name)
        except PortError:
            self.close()
            raise

    @property
    def counters(self) -> dict[int, InterfaceCounters]:
        """The counters of each port."""
        names = [field.name for field in dataclasses.fields(InterfaceCounters)]
        return {port: InterfaceCounters(*(int(row[name]) for name in names)) for port, row in self._native.items()}

    @property
    def interfaces(self) -> dict[int, str]:
        """The name of each port's interface."""
        return dict(self._names)

    @functools.cached_property
    def _loop(self) -> EthernetLoop:
        return EthernetLoop(self._rows)

    def datapath_loop(self, wake: int) -> DatapathLoop:
        self._loop.wake_by(wake)
        return self._loop

    def send(self, port: int, frame: bytes) -> bool:
        if port not in self._native:
            return False
        if not self._waits:
            self._outgoing.append((port, frame))
            return True
        waiting = self._waiting.get(port)
        if waiting is None:
            if self._transmit([(port, frame)]):
                return True
            waiting = self._waiting[port] = deque()
            self._loop.watch_for_room(port, True)
        waiting.append(frame)
        if len(waiting) >= OUTPUT_FRAMES:
            self.full.add(port)
        return True

    def flush(self) -> None:
        if self._outgoing:
            frames, self._outgoing = self._outgoing, []
            self._transmit(frames)
        self._send_waiting([port for port in self._waiting if self._loop.has_woken(port)])

    def _send_waiting(self, ports: Sequence[int]) -> None:
        """Send the frames that wait for these ports, as far as there is room."""
        for port in ports:
            waiting = self._waiting[port]
            while waiting and self._transmit([(port, waiting[0])]):
                waiting.popleft()
            if not waiting:
                del self._waiting[port]
                self._loop.watch_for_room(port, False)
            if len(waiting) < OUTPUT_FRAMES:
                self.full.discard(port)

    def wait_when_full(self, wait: bool) -> None:
        """Also set the sockets' send buffers: with `wait` to the system's default, as BMv2's sockets have them."""
        self.flush()
        self._send_waiting([*self._waiting])
        self._rows["waits"] = self._waits = wait
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            default = any_socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        for opened in self._sockets.values():
            if wait:
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, default // 2)  # the system doubles it
            else:
                datagrams.enlarge_buffers(opened, SOCKET_BUFFER_BYTES)
        self.flush()

    def close(self) -> None:
        for opened in self._sockets.values():
            opened.close()

    def _transmit(self, frames: Sequence[tuple[int, bytes]]) -> bool:
        """Send frames, where they may wait one at a time; False if it has to wait."""
        return self._loop.send(frames)


class LinkStates:
    """Watches the link states of interfaces, for the watch ports of action selectors.

    Calls `changed` with a port and whether it is up, on its own thread.
    """

    def __init__(self, interfaces: Mapping[int, str], changed: Callable[[int, bool], None]) -> None:
        self._interfaces = interfaces
        self._changed = changed
        self._up = dict.fromkeys(interfaces, True)
        self._ended = threading.Event()
        self._thread = DaemonThread(self._watch, "link-states")

    def poll(self) -> None:
        """Read the states; call `changed` for those that differ from the last call."""
        for port, name in self._interfaces.items():
            up = link_is_up(name)
            if up != self._up[port]:
                self._changed(port, up)
                self._up[port] = up  # not where that has failed: it is called again

    def _watch(self) -> None:
        while not self._ended.wait(LINK_INTERVAL_S):
            self.poll()

    def start(self) -> None:
        """Poll now, and every LINK_INTERVAL_S until `close`."""
        self.poll()
        self._thread.start()

    def close(self) -> None:
        """Stop polling."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(5)


class EthernetLoop(DatapathLoop):
    """The native loop over interfaces: see `p4reduce_switch.datapath`."""

    def __init__(self, interfaces: NDArray[np.void]) -> None:
        self._interfaces = interfaces
        polled = datagrams.polled([*interfaces["descriptor"].tolist(), -1])
        self._rows = np.full(MAX_PORT + 1, -1, np.int64)
        self._rows[interfaces["port"]] = np.arange(len(interfaces))
        ports = Interfaces(
            io=zeros(PacketIo),
            interfaces=cast(Table[Interface], interfaces),
            rows=self._rows,
            polled=cast(Table[PollFd], polled),
        )
        super().__init__("p4reduce_switch.datapath.ethernet_kernels", polled, ports)

    def watch_for_room(self, port: int, watch: bool) -> None:
        """Return from `run_once` when the socket of a port has room."""
        self._polled["events"][self._rows[port]] = READABLE | (WRITABLE if watch else 0)

    def has_woken(self, port: int) -> bool:
        """Return, once for each wait of `run_once`, whether the socket of a port had room or a frame.

        An arrival wakes BMv2's sender too: without one it sleeps until half of the socket's buffer is free.
        """
        row = self._rows[port]
        woken = bool(self._polled["revents"][row])
        self._polled["revents"][row] = 0
        return woken

    def send(self, frames: Sequence[tuple[int, bytes]]) -> bool:
        super().send(frames)
        was_full = bool(self._interfaces["full"].any())
        self._interfaces["full"] = False
        return not was_full


def _ask(request: int, name: str) -> bytes:
    """Return what the kernel answers about an interface of the network namespace, which /sys need not show."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        return fcntl.ioctl(any_socket.fileno(), request, struct.pack("16s24x", name.encode()))[16:]


def link_is_up(name: str) -> bool:
    """Return whether an interface is there and has a link."""
    try:
        return bool(struct.unpack_from("H", _ask(_SIOCGIFFLAGS, name))[0] & _IFF_RUNNING)
    except OSError:  # the interface was removed
        return False


def _longest_frame(name: str) -> int:
    """Return the bytes of the longest frame that an interface accepts, without a VLAN tag."""
    return 14 + int(struct.unpack_from("i", _ask(_SIOCGIFMTU, name))[0])


def _open(name: str) -> socket.socket:
    try:
        index = socket.if_nametoindex(name)
    except OSError:
        raise PortError(f"there is no interface {name!r}; `ip link` lists them") from None
    try:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    except PermissionError:
        raise PortError(
            f"opening {name} takes root or CAP_NET_RAW: run with sudo, or use the UDP underlay (no -i)"
        ) from None
    datagrams.enlarge_buffers(opened, SOCKET_BUFFER_BYTES)
    opened.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    with contextlib.suppress(OSError):  # Linux before 4.20
        opened.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    opened.bind((name, _ETH_P_ALL))
    membership = struct.pack("iHH8s", index, _PACKET_MR_PROMISC, 0, b"")
    opened.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)
    return opened
