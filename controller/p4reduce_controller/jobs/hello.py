"""Reading HELLO: the frame with which a worker shows the controller where it is on the network."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass

WIRE_VERSION = 1
HELLO = 4

_ETHERNET = struct.Struct("!6s6sH")
_IPV4 = struct.Struct("!BBHHHBBHII")
_UDP = struct.Struct("!HHHH")
# version and type, job, present, reserved, epoch, slot, round, seen, then the nonce
_BASE = struct.Struct("!BBBBHHIIQ")
_ETHERTYPE_IPV4 = 0x0800
_PROTOCOL_UDP = 17


@dataclass(frozen=True)
class Address:
    """Where a worker is: the switch port its frames come in by, and their source addresses."""

    ingress_port: int
    mac: int
    ip: int
    udp_port: int

    @property
    def host(self) -> str:
        """The IPv4 address as text."""
        return str(ipaddress.IPv4Address(self.ip))

    @property
    def mac_text(self) -> str:
        """The MAC address as text."""
        return self.mac.to_bytes(6, "big").hex(":")


@dataclass(frozen=True)
class Hello:
    """One HELLO as it came in."""

    job_id: int
    nonce: int
    address: Address


def parse_hello(ingress_port: int, frame: bytes) -> Hello | None:
    """The HELLO in an Ethernet frame that came in by `ingress_port`; None if the frame is anything else."""
    if len(frame) < _ETHERNET.size + _IPV4.size + _UDP.size + _BASE.size:
        return None
    _, mac, ethertype = _ETHERNET.unpack_from(frame)
    version_ihl, _, _, _, fragment, _, protocol, _, ip, _ = _IPV4.unpack_from(frame, _ETHERNET.size)
    at = _ETHERNET.size + _IPV4.size
    udp_port, _, udp_length, _ = _UDP.unpack_from(frame, at)
    base = _BASE.unpack_from(frame, at + _UDP.size)
    version_type, job_id, nonce = base[0], base[1], base[8]
    is_hello = (
        ethertype == _ETHERTYPE_IPV4
        and version_ihl == 0x45
        and fragment & 0x3FFF == 0
        and protocol == _PROTOCOL_UDP
        and udp_length == _UDP.size + _BASE.size
        and version_type == WIRE_VERSION << 4 | HELLO
    )
    if not is_hello:
        return None
    return Hello(job_id, nonce, Address(ingress_port, int.from_bytes(mac, "big"), ip, udp_port))
