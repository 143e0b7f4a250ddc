"""Linux interfaces as switch ports, over AF_PACKET: `-i 1@veth1`, spelled as BMv2 spells it."""

from __future__ import annotations

import re
import socket
import struct
from dataclasses import dataclass
from typing import Final

from p4reduce_switch.ports import PortError, Pump, Receiver

BURST: Final = 256
SOCKET_BUFFER_BYTES: Final = 8 << 20
MAX_FRAME: Final = 65535
_ETH_P_ALL = 0x0003
_PACKET_OUTGOING = 4
_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, _PACKET_MR_PROMISC = 263, 1, 1


def parse_interface(text: str) -> tuple[int, str]:
    """(port, interface) of "1@veth1"."""
    match = re.fullmatch(r"(\d+)@([^\s/@]{1,15})", text)
    if match is None or not 0 <= int(match[1]) < 510:
        raise PortError(f"an interface is given as PORT@NAME with PORT 0..509, such as 1@veth1, not {text!r}")
    return int(match[1]), match[2]


@dataclass
class InterfaceCounters:
    """What has passed through one interface."""

    frames_in: int = 0
    bytes_in: int = 0
    frames_out: int = 0
    bytes_out: int = 0
    send_errors: int = 0


class EthernetPorts:
    """One AF_PACKET socket an interface. `counters` are by port."""

    def __init__(self, interfaces: dict[int, str]) -> None:
        self.counters = {port: InterfaceCounters() for port in interfaces}
        self._sockets: dict[int, socket.socket] = {}
        self._ports: dict[int, int] = {}
        try:
            for port, name in interfaces.items():
                self._sockets[port] = opened = _open(name)
                self._ports[opened.fileno()] = port
        except PortError:
            self.close()
            raise

    def filenos(self) -> list[int]:
        return list(self._ports)

    def drain(self, fileno: int, receive: Receiver) -> None:
        port = self._ports[fileno]
        counters = self.counters[port]
        recvfrom = self._sockets[port].recvfrom
        for _ in range(BURST):
            try:
                frame, address = recvfrom(MAX_FRAME)
            except BlockingIOError:
                return
            except OSError:  # the interface went down; it may come back
                return
            if address[2] != _PACKET_OUTGOING:
                counters.frames_in += 1
                counters.bytes_in += len(frame)
                receive(port, frame)

    def send(self, port: int, frame: bytes) -> bool:
        opened = self._sockets.get(port)
        if opened is None:
            return False
        try:
            opened.send(frame)
        except OSError:  # buffer full, interface down, frame over the MTU: lost, as on a wire
            self.counters[port].send_errors += 1
        else:
            self.counters[port].frames_out += 1
            self.counters[port].bytes_out += len(frame)
        return True

    def pump(self, wake: int) -> Pump | None:
        return None

    def close(self) -> None:
        for opened in self._sockets.values():
            opened.close()


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
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        opened.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)
    opened.bind((name, _ETH_P_ALL))
    membership = struct.pack("iHH8s", index, _PACKET_MR_PROMISC, 0, b"")
    opened.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)
    return opened
