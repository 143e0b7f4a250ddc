"""HELLO: the frame with which a worker shows the controller, through the switch, where it is attached."""

from __future__ import annotations

import struct
from typing import Final

from p4reduce_contracts.errors import FrameError
from p4reduce_contracts.wire.numbers import BASE, BASE_BYTES, HELLO, WIRE_VERSION
from p4reduce_runtime.underlay import HELLO_BYTES

_NONCE = struct.Struct(">Q")
MEMBER_BITS: Final = 59
"""Bits of a member's nonce. The others of a HELLO's are the place, in the member's ticket, of the switch it is for."""


def nonce_for(member: int, place: int) -> int:
    """Return the nonce of the HELLO to the switch at this place of a ticket."""
    return place << MEMBER_BITS | member


def unpack_hello(payload: bytes) -> tuple[int, int]:
    """(job, nonce) of a HELLO frame; FrameError says which check failed."""
    if len(payload) < BASE_BYTES:
        raise FrameError("TRUNCATED", f"{len(payload)} B, a header is {BASE_BYTES} B")
    first, job, *zero = BASE.unpack_from(payload)
    if first >> 4 != WIRE_VERSION:
        raise FrameError("VERSION", f"wire version {first >> 4}, this worker speaks {WIRE_VERSION}")
    if first & 15 != HELLO:
        raise FrameError("TYPE", f"frame type {first & 15} is not HELLO")
    if len(payload) != HELLO_BYTES:
        raise FrameError("LENGTH", f"{len(payload)} B, a HELLO is {HELLO_BYTES} B")
    if any(zero):
        raise FrameError("RESERVED", "a HELLO has no slot, round, epoch or blocks")
    return job, _NONCE.unpack_from(payload, BASE_BYTES)[0]
