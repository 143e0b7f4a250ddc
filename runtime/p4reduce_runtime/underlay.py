"""The UDP underlay: what the embedded switch's socket has to know of the datagrams that its peers send.

A peer gets a port of the switch with its first HELLO. Everything else about frames is the P4 program's.
"""

from __future__ import annotations

from typing import Final

AGGREGATION_PORT: Final = 21072
"""The UDP port of the switch's service."""
UPLINK_PORT: Final = 500
"""The switch's port that leads to its parent."""
HELLO_BYTES: Final = 24
HELLO_START: Final = 0x24
"""The first byte of a HELLO: wire version 2, type 4."""
_JOB, _NONCE = 1, 16


def is_hello(datagram: bytes) -> bool:
    """Return whether a datagram is a HELLO: between its job and its nonce everything is 0."""
    return len(datagram) == HELLO_BYTES and datagram[0] == HELLO_START and not any(datagram[_JOB + 1 : _NONCE])
