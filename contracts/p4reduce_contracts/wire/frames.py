"""The frame: what a UDP datagram between a worker and the switch holds. All fields are big-endian."""

from __future__ import annotations

from typing import Final, NamedTuple

from p4reduce_contracts.errors import FrameError
from p4reduce_contracts.wire.checksum import internet_checksum
from p4reduce_contracts.wire.geometry import Geometry
from p4reduce_contracts.wire.numbers import (
    BASE_BYTES,
    CHECK_WORD,
    CONTRIBUTE,
    KEYS_WORD,
    PENDING,
    TYPE_MASK,
    TYPE_NAMES,
    WIRE_VERSION,
)

FRAME_FAULTS: Final = ("TRUNCATED", "LENGTH", "VERSION", "TYPE", "RESERVED", "HEADER_CHECKSUM")


class Frame(NamedTuple):
    """One parsed frame; `blocks` holds the blocks of `present`'s columns, lowest column first.

    `check` is the check word that the frame carries, right or wrong: wire/check.py defines the right one.
    """

    type: int
    job: int
    present: int
    epoch: int
    slot: int
    round: int
    seen: int
    secret: int
    check: int
    keys: tuple[int, ...]
    blocks: bytes
    level: int = 0
    """Number of levels, in a RESULT or PENDING, from the receiver's own switch up to the switch that answered."""

    def __repr__(self) -> str:
        """All but the secret, which no message may show."""
        shown = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items() if name != "secret")
        return f"Frame({shown})"


def pack(geometry: Geometry, frame: Frame) -> bytes:
    """The bytes of a CONTRIBUTE, RESULT or PENDING frame, with the right header checksum."""
    if len(frame.keys) != geometry.columns:
        raise FrameError("LENGTH", f"{len(frame.keys)} keys for {geometry.columns} columns")
    if frame.present >> geometry.columns:
        raise FrameError("LENGTH", f"present {frame.present:#04x} names more than {geometry.columns} columns")
    if len(frame.blocks) != geometry.block_bytes * frame.present.bit_count():
        raise FrameError("LENGTH", f"{len(frame.blocks)} B of blocks for present {frame.present:#04x}")
    kind, job, present, epoch, slot, round_, seen, secret, check, keys, blocks, level = frame
    fields = (WIRE_VERSION << 4 | kind, job, present, level, epoch, slot, round_, seen, secret, check)
    checksum = header_checksum(geometry, geometry.header.pack(*fields, 0, 0, *keys))
    return geometry.header.pack(*fields, checksum, 0, *keys) + blocks


def unpack(geometry: Geometry, payload: bytes) -> Frame:
    """Parse a CONTRIBUTE, RESULT or PENDING frame; FrameError says which check failed."""
    if len(payload) < geometry.frame_header_bytes:
        raise FrameError("TRUNCATED", f"{len(payload)} B, a header is {geometry.frame_header_bytes} B")
    fields = geometry.header.unpack_from(payload)
    first, job, present, level, epoch, slot, round_, seen, secret, check, checksum, unused = fields[:12]
    keys = fields[12:]
    if first >> 4 != WIRE_VERSION:
        raise FrameError("VERSION", f"wire version {first >> 4}, this worker speaks {WIRE_VERSION}")
    kind = first & TYPE_MASK
    if not CONTRIBUTE <= kind <= PENDING:
        raise FrameError("TYPE", f"frame type {kind} carries no keys or is unknown")
    if unused or kind == CONTRIBUTE and level:
        raise FrameError(
            "RESERVED", f"the guard's reserved field is {unused:#06x}, and a {TYPE_NAMES[kind]}'s level {level}"
        )
    if present >> geometry.columns or len(payload) != geometry.lengths[present]:
        raise FrameError("LENGTH", f"{len(payload)} B with present {present:#04x}")
    if header_checksum(geometry, payload) != checksum:
        raise FrameError("HEADER_CHECKSUM", f"{checksum:#06x} is not the checksum of base header, check and keys")
    blocks = payload[geometry.frame_header_bytes :]
    return Frame(kind, job, present, epoch, slot, round_, seen, secret, check, keys, blocks, level)


def header_checksum(geometry: Geometry, frame: bytes) -> int:
    """The Internet checksum of a frame's base header, check word and keys."""
    check, keys = 4 * CHECK_WORD, 4 * KEYS_WORD
    return internet_checksum(frame[:BASE_BYTES] + frame[check : check + 4] + frame[keys : geometry.frame_header_bytes])
