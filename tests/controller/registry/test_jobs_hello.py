"""Reading HELLO frames; scapy builds them."""

from __future__ import annotations

import struct

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from p4reduce_controller.registry.hello import Address, parse_hello

NONCE = 0x0123456789ABCDEF
BASE = struct.pack("!BBBBHHII", 2 << 4 | 4, 9, 0, 0, 0, 0, 0, 0)


def frame(payload: bytes = BASE + struct.pack("!Q", NONCE), **ip: object) -> bytes:
    ethernet = Ether(src="02:00:00:00:00:07", dst="02:00:00:00:00:01")
    udp = UDP(sport=5555, dport=21072)
    return bytes(ethernet / IP(src="10.0.0.7", dst="10.0.0.254", **ip) / udp / payload)


@pytest.mark.parametrize("padding", [b"", bytes(6)])
def test_a_hello_gives_nonce_port_and_addresses(padding: bytes) -> None:
    hello = parse_hello(3, frame() + padding)
    assert hello is not None
    assert (hello.job_id, hello.nonce) == (9, NONCE)
    assert hello.address == Address(3, 0x020000000007, 0x0A000007, 5555)
    assert (hello.address.host, hello.address.mac_text) == ("10.0.0.7", "02:00:00:00:00:07")


@pytest.mark.parametrize(
    "other",
    [
        b"",
        frame()[:-1],
        frame(BASE),
        frame(b"\x21" + BASE[1:] + bytes(8)),
        frame(b"\x14" + BASE[1:] + bytes(8)),
        frame(BASE + bytes(9)),
        frame(frag=1),
        frame(flags="MF"),
        frame(proto=6),
        frame(options=[b"\x01" * 4]),
        frame()[:12] + b"\x86\xdd" + frame()[14:],
    ],
    ids=["empty", "cut", "no nonce", "type", "version", "long", "fragment", "more", "tcp", "options", "ipv6"],
)
def test_other_packets_are_not_hellos(other: bytes) -> None:
    assert parse_hello(3, other) is None
