"""HELLO as an Ethernet frame: it shows the controller the addresses and the ingress port of a worker or a switch."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from p4reduce_contracts.errors import FrameError
from p4reduce_contracts.wire.checksum import internet_checksum
from p4reduce_contracts.wire.hello import unpack_hello
from p4reduce_runtime.underlay import AGGREGATION_PORT, ENCAP_BYTES, HELLO_BYTES, pack_hello

_ETHERNET = struct.Struct("!6s6sH")
_IPV4 = struct.Struct("!BBHHHBBHII")
_UDP = struct.Struct("!HHHH")
_ETHERTYPE_IPV4 = 0x0800
_PROTOCOL_UDP = 17
_TTL = 64


@dataclass(frozen=True)
class Address:
    """The place of a worker or a switch: the switch port its frames come in by, and their source addresses."""

    ingress_port: Annotated[int, Meta(ge=0, le=511)]
    mac: Annotated[int, Meta(ge=0, lt=1 << 48)]
    ip: Annotated[int, Meta(ge=0, lt=1 << 32)]
    udp_port: Annotated[int, Meta(ge=0, lt=1 << 16)]

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
    if len(frame) < ENCAP_BYTES + HELLO_BYTES:
        return None
    _, mac, ethertype = _ETHERNET.unpack_from(frame)
    version_ihl, _, _, _, fragment, _, protocol, _, ip, _ = _IPV4.unpack_from(frame, _ETHERNET.size)
    udp_port, _, udp_length, _ = _UDP.unpack_from(frame, _ETHERNET.size + _IPV4.size)
    carries_hello = (
        ethertype == _ETHERTYPE_IPV4
        and version_ihl == 0x45
        and fragment & 0x3FFF == 0
        and protocol == _PROTOCOL_UDP
        and udp_length == _UDP.size + HELLO_BYTES
    )
    if not carries_hello:
        return None
    try:
        job_id, nonce = unpack_hello(frame[ENCAP_BYTES : ENCAP_BYTES + HELLO_BYTES])
    except FrameError:
        return None
    return Hello(job_id, nonce, Address(ingress_port, int.from_bytes(mac, "big"), ip, udp_port))


def hello_frame(job: int, nonce: int, source: tuple[int, int], target: tuple[int, int], udp_port: int) -> bytes:
    """Return the Ethernet frame of a HELLO from one switch to another; `source` and `target` are MAC and IP address.

    `udp_port` is the target's: that of its socket, where it has UDP peers. There is no UDP checksum.
    """
    udp_bytes = _UDP.size + HELLO_BYTES
    ip = [0x45, 0, _IPV4.size + udp_bytes, 0, 0, _TTL, _PROTOCOL_UDP, 0, source[1], target[1]]
    ip[7] = internet_checksum(_IPV4.pack(*ip))
    macs = target[0].to_bytes(6, "big"), source[0].to_bytes(6, "big")
    udp = _UDP.pack(AGGREGATION_PORT, udp_port, udp_bytes, 0)
    return _ETHERNET.pack(*macs, _ETHERTYPE_IPV4) + _IPV4.pack(*ip) + udp + pack_hello(job, nonce)
