"""Echo requests (ICMP) to the switch, as far as the system lets this process send them."""

from __future__ import annotations

import secrets
import socket
import struct
import time
from typing import Final

from p4reduce_contracts.wire.checksum import internet_checksum

_ECHO_REQUEST: Final = 8
_ECHO_REPLY: Final = 0
_LONGEST_REPLY: Final = 2048
_HEADER = struct.Struct(">BBHHH")
_RAW_IP_VERSION: Final = 4


def ping(host: str, count: int, timeout_s: float) -> list[float]:
    """Send `count` echo requests, one after the other; return the seconds of those answered within `timeout_s` each.

    Raises PermissionError where this process may send none, and OSError where there is no way to the host.
    """
    with _icmp_socket() as sock:
        sock.connect((host, 0))
        return [seconds for number in range(count) if (seconds := _echo(sock, number, timeout_s)) is not None]


def _icmp_socket() -> socket.socket:
    """Open a socket for echo requests: the kernel's own kind for users (net.ipv4.ping_group_range), or a raw one."""
    try:
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
    except OSError:
        return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


def _echo(sock: socket.socket, number: int, timeout_s: float) -> float | None:
    token = secrets.token_bytes(16)  # whatever id the kernel gives, the reply brings these back
    begun = time.monotonic()
    sock.send(echo_request(number, token))
    while (left_s := begun + timeout_s - time.monotonic()) > 0:
        sock.settimeout(left_s)
        try:
            packet = sock.recv(_LONGEST_REPLY)
        except TimeoutError:
            return None
        if is_reply(packet, token):
            return time.monotonic() - begun
    return None


def echo_request(number: int, token: bytes) -> bytes:
    """Return an echo request with this sequence number and payload."""
    head = _HEADER.pack(_ECHO_REQUEST, 0, 0, 0, number)
    return _HEADER.pack(_ECHO_REQUEST, 0, internet_checksum(head + token), 0, number) + token


def is_reply(packet: bytes, token: bytes) -> bool:
    """Return whether a received packet, with its IP header or without, is the reply that carries `token`."""
    at = 4 * (packet[0] & 15) if packet and packet[0] >> 4 == _RAW_IP_VERSION else 0
    return len(packet) > at and packet[at] == _ECHO_REPLY and packet.endswith(token)
