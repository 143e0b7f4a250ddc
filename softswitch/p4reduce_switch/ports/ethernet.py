"""Linux interfaces as switch ports, over AF_PACKET: `-i 1@veth1`, spelled as BMv2 spells it."""

from __future__ import annotations

import contextlib
import fcntl
import re
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from p4reduce_runtime import datagrams, kernels
from p4reduce_runtime.datagrams import ENCAP_BYTES, PollFd
from p4reduce_runtime.records import Table, zeros
from p4reduce_switch.datapath import MAX_PORT, Buffers, Memory, Reason
from p4reduce_switch.datapath.ethernet import Interface, Interfaces, PacketIo
from p4reduce_switch.ports import DatapathLoop, Gso, PortError, PortFullError, Receiver, with_native
from p4reduce_switch.ports.super_frames import GSO_UDP_L4, HEADER, NEEDS_CHECKSUM, PLAIN, complete

BURST: Final = 256
SOCKET_BUFFER_BYTES: Final = 8 << 20
MAX_FRAME: Final = 65535 + 64
_ETH_P_ALL = 0x0003
_PACKET_OUTGOING = 4
_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, _PACKET_MR_PROMISC = 263, 1, 1
_PACKET_VNET_HDR, _PACKET_IGNORE_OUTGOING = 15, 23
_SIOCGIFMTU = 0x8921


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
    """Interfaces as ports, with an AF_PACKET socket each."""

    def __init__(self, interfaces: dict[int, str], gso: Gso = Gso.AUTO) -> None:
        self._counters = {port: InterfaceCounters() for port in interfaces}
        self._sockets: dict[int, socket.socket] = {}
        self._ports: dict[int, int] = {}
        self._native: dict[int, np.void] = {}
        self._gso = gso
        self._names = interfaces
        self._raises_when_full = False
        try:
            for port, name in interfaces.items():
                self._sockets[port] = opened = _open(name)
                self._ports[opened.fileno()] = port
        except PortError:
            self.close()
            raise
        self._with_header = bool(self._sockets) and all(map(_enable_headers, self._sockets.values()))

    @property
    def counters(self) -> dict[int, InterfaceCounters]:
        """The counters of each port, of Python and of the native loop together."""
        counted = self._counters
        return {port: with_native(counted[port], native) for port, native in self._native.items()} or dict(counted)

    @property
    def interfaces(self) -> dict[int, str]:
        """The name of each port's interface."""
        return dict(self._names)

    def filenos(self) -> list[int]:
        return list(self._ports)

    def drain(self, fileno: int, receive: Receiver) -> None:
        port = self._ports[fileno]
        counters = self._counters[port]
        recvfrom = self._sockets[port].recvfrom
        for _ in range(BURST):
            try:
                received, address = recvfrom(MAX_FRAME)
            except BlockingIOError:
                return
            except OSError:  # the interface went down; it may come back
                return
            if address[2] != _PACKET_OUTGOING:
                for frame in complete(received) if self._with_header else [received]:
                    counters.frames_in += 1
                    counters.bytes_in += len(frame)
                    receive(port, frame)

    def send(self, port: int, frame: bytes) -> bool:
        opened = self._sockets.get(port)
        if opened is None:
            return False
        counters = self._counters[port]
        try:
            opened.send(PLAIN + frame if self._with_header else frame)
        except BlockingIOError:
            if self._raises_when_full:
                raise PortFullError(opened.fileno()) from None
            counters.send_errors += 1
        except OSError:  # interface down, frame above the MTU: lost, as on a wire
            counters.send_errors += 1
        else:
            counters.frames_out += 1
            counters.bytes_out += len(frame)
        return True

    def wait_when_full(self, wait: bool) -> None:
        """Also set the sockets' send buffers: with `wait` to the system's default, as BMv2's sockets have them."""
        self._raises_when_full = wait
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            default = any_socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        for opened in self._sockets.values():
            if wait:
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, default // 2)  # the system doubles it
            else:
                datagrams.enlarge_buffers(opened, SOCKET_BUFFER_BYTES)

    def datapath_loop(self, wake: int) -> DatapathLoop | None:
        usable = self._with_header and datagrams.supported()
        compiled = kernels.load("p4reduce_switch.datapath.ethernet_kernels") if usable else None
        if compiled is None:
            return None
        descriptors = {port: opened.fileno() for port, opened in self._sockets.items()}
        loop = EthernetLoop(compiled.run_once, descriptors, wake)
        self._native = dict(zip(self._sockets, loop.interfaces, strict=True))
        for port, interface in self._native.items():
            interface["gso_allowed"] = self._gso
            interface["max_frame"] = _longest_frame(self._names[port])
        return loop

    def close(self) -> None:
        for opened in self._sockets.values():
            opened.close()


class EthernetLoop:
    """The native loop over interfaces: see `p4reduce_switch.datapath`."""

    def __init__(
        self,
        run_once: Callable[[Memory, Interfaces, NDArray[np.void]], int],
        descriptors: dict[int, int],
        wake: int,
    ) -> None:
        """`run_once` is the kernel of that name.

        `descriptors` are the sockets by port; frames have the header of `super_frames` on them.
        """
        self.buffers = Buffers()
        self.interfaces: NDArray[np.void] = zeros(Interface, len(descriptors))
        """One Interface for each port."""
        self._run_once = run_once
        rows = np.full(MAX_PORT + 1, -1, np.int64)
        for row, (port, descriptor) in enumerate(descriptors.items()):
            interface = self.interfaces[row]
            interface["descriptor"], interface["port"], interface["max_frame"] = descriptor, port, MAX_FRAME
            rows[port] = row
        self._ports = Interfaces(
            io=zeros(PacketIo),
            interfaces=cast(Table[Interface], self.interfaces),
            rows=rows,
            polled=cast(Table[PollFd], datagrams.polled([*descriptors.values(), wake])),
        )

    def run_once(self, lock: NDArray[np.void]) -> Reason:
        return Reason(self._run_once(self.buffers.memory, self._ports, lock))

    def receive_pending(self, receive: Receiver) -> None:
        state = self.buffers.state
        at, segment = int(state["pending_at"]), int(state["pending_segment"])
        if at < 0:
            return
        header = HEADER.pack(NEEDS_CHECKSUM, GSO_UDP_L4, ENCAP_BYTES, segment, 34, 6) if segment else PLAIN
        frames = complete(header + self.buffers.pending(int(state["pending_bytes"])))
        done = (at - ENCAP_BYTES) // segment if segment else 0
        state["pending_at"] = -1
        interface = self.interfaces[state["pending_port"]]
        for frame in frames[done:]:
            interface["frames_in"] += 1
            interface["bytes_in"] += len(frame)
            receive(int(interface["port"]), frame)


def _enable_headers(opened: socket.socket) -> bool:
    """Enable PACKET_VNET_HDR, the header with the pending offloads; return False where the kernel lacks it."""
    try:
        opened.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    except OSError:
        return False
    with contextlib.suppress(OSError):
        opened.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    return True


def _longest_frame(name: str) -> int:
    """Return the bytes of the longest frame that an interface accepts, without a VLAN tag."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16si12x", name.encode(), 0)
        answer = fcntl.ioctl(any_socket.fileno(), _SIOCGIFMTU, request)
    return 14 + int(struct.unpack("16si12x", answer)[1])


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
    opened.bind((name, _ETH_P_ALL))
    membership = struct.pack("iHH8s", index, _PACKET_MR_PROMISC, 0, b"")
    opened.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)
    return opened
