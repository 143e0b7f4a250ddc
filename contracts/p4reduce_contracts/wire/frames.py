"""The frame: what a UDP datagram between a worker and the switch holds. All fields are big-endian."""

from __future__ import annotations

from typing import Final, NamedTuple

from p4reduce_contracts.errors import FrameError
from p4reduce_contracts.wire.geometry import Geometry
from p4reduce_contracts.wire.numbers import CONTRIBUTE, PENDING, WIRE_VERSION

FRAME_FAULTS: Final = ("TRUNCATED", "LENGTH", "VERSION", "TYPE", "RESERVED")


class Frame(NamedTuple):
    """One parsed frame; `blocks` holds the blocks of `present`'s columns, lowest column first."""

    type: int
    job: int
    present: int
    epoch: int
    slot: int
    round: int
    seen: int
    keys: tuple[int, ...]
    blocks: bytes


def key_of(block: int, exponent: int) -> int:
    """The look-ahead key: the smallest block wins, and among its holders the largest exponent."""
    return block << 8 | (255 - exponent)


def pack(geometry: Geometry, frame: Frame) -> bytes:
    """The bytes of a CONTRIBUTE, RESULT or PENDING frame."""
    if len(frame.keys) != geometry.columns:
        raise FrameError("LENGTH", f"{len(frame.keys)} keys for {geometry.columns} columns")
    if frame.present >> geometry.columns:
        raise FrameError("LENGTH", f"present {frame.present:#04x} names more than {geometry.columns} columns")
    if len(frame.blocks) != geometry.block_bytes * frame.present.bit_count():
        raise FrameError("LENGTH", f"{len(frame.blocks)} B of blocks for present {frame.present:#04x}")
    head = geometry.header.pack(
        WIRE_VERSION << 4 | frame.type,
        frame.job,
        frame.present,
        0,
        frame.epoch,
        frame.slot,
        frame.round,
        frame.seen,
        *frame.keys,
    )
    return head + frame.blocks


def unpack(geometry: Geometry, payload: bytes) -> Frame:
    """Parse a CONTRIBUTE, RESULT or PENDING frame; FrameError says which check failed."""
    if len(payload) < geometry.frame_header_bytes:
        raise FrameError("TRUNCATED", f"{len(payload)} B, a header is {geometry.frame_header_bytes} B")
    first, job, present, reserved, epoch, slot, round_, seen, *keys = geometry.header.unpack_from(payload)
    if first >> 4 != WIRE_VERSION:
        raise FrameError("VERSION", f"wire version {first >> 4}, this worker speaks {WIRE_VERSION}")
    kind = first & 15
    if not CONTRIBUTE <= kind <= PENDING:
        raise FrameError("TYPE", f"frame type {kind} carries no keys or is unknown")
    if reserved:
        raise FrameError("RESERVED", f"the reserved byte is {reserved:#04x}")
    if present >> geometry.columns or len(payload) != geometry.lengths[present]:
        raise FrameError("LENGTH", f"{len(payload)} B with present {present:#04x}")
    blocks = payload[geometry.frame_header_bytes :]
    return Frame(kind, job, present, epoch, slot, round_, seen, tuple(keys), blocks)
