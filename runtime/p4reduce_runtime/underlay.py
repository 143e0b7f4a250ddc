"""The UDP underlay: what the embedded switch's socket has to know of the datagrams that its peers send.

A peer gets a port of the switch with its first HELLO. Everything else about frames is the P4 program's.
"""

from __future__ import annotations

import struct
from typing import Final

AGGREGATION_PORT: Final = 21072
"""The UDP port of the switch's service."""
UPLINK_PORT: Final = 500
"""The switch's port that leads to its parent."""
ENCAP_BYTES: Final = 14 + 20 + 8
"""Ethernet, IPv4 (no options) and UDP headers, which the switch adds to each datagram."""
HELLO_BYTES: Final = 24
HELLO_START: Final = 0x24
"""The first byte of a HELLO."""
GROUP_AT: Final = 1
"""The byte of a payload by which, with NUMBER_AT, the threads of a switch divide the datagrams: a job of p4reduce."""
NUMBER_AT: Final = 6
"""The place of 16 bits that number the payloads of a group: a slot of p4reduce."""
NUMBERS_TOGETHER: Final = 43
"""Payloads of so many consecutive numbers go to one thread: a super-datagram of 1 KB frames."""
_HELLO = struct.Struct(">BB14xQ")
_JOB, _NONCE = 1, 16


def pack_hello(job: int, nonce: int) -> bytes:
    """Return the HELLO of a job, for which the nonce is the caller's to choose."""
    return _HELLO.pack(HELLO_START, job, nonce)


def is_hello(datagram: bytes) -> bool:
    """Return whether a datagram is a HELLO: between its job and its nonce everything is 0."""
    return len(datagram) == HELLO_BYTES and datagram[0] == HELLO_START and not any(datagram[_JOB + 1 : _NONCE])
