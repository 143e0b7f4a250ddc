"""The frame: what a UDP datagram between a worker and the switch holds. All fields are big-endian."""

from __future__ import annotations

from typing import Final, NamedTuple

from p4reduce_contracts.errors import FrameError
from p4reduce_contracts.wire.geometry import Geometry
from p4reduce_contracts.wire.numbers import BASE_BYTES, CONTRIBUTE, GUARD_BYTES, PENDING, WIRE_VERSION

FRAME_FAULTS: Final = ("TRUNCATED", "LENGTH", "VERSION", "TYPE", "RESERVED", "HEADER_CHECKSUM")

_CHECK_AT: Final = BASE_BYTES + 8
_CHECKSUM_AT: Final = BASE_BYTES + 12
_KEYS_AT: Final = BASE_BYTES + GUARD_BYTES


class Frame(NamedTuple):
    """One parsed frame; `blocks` holds the blocks of `present`'s columns, lowest column first.

    `check` is the check word that the frame carries, right or wrong: wire/check.py computes the right one.
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

    def __repr__(self) -> str:
        """All but the secret, which no message may show."""
        shown = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items() if name != "secret")
        return f"Frame({shown})"


def key_of(block: int, exponent: int) -> int:
    """The look-ahead key: the smallest block wins, and among its holders the largest exponent."""
    return block << 8 | (255 - exponent)


def pack(geometry: Geometry, frame: Frame) -> bytes:
    """The bytes of a CONTRIBUTE, RESULT or PENDING frame, with the right header checksum."""
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
        frame.secret,
        frame.check,
        0,
        0,
        *frame.keys,
    )
    checksum = header_checksum(geometry, head).to_bytes(2, "big")
    return head[:_CHECKSUM_AT] + checksum + head[_CHECKSUM_AT + 2 :] + frame.blocks


def unpack(geometry: Geometry, payload: bytes) -> Frame:
    """Parse a CONTRIBUTE, RESULT or PENDING frame; FrameError says which check failed."""
    if len(payload) < geometry.frame_header_bytes:
        raise FrameError("TRUNCATED", f"{len(payload)} B, a header is {geometry.frame_header_bytes} B")
    first, job, present, reserved, epoch, slot, round_, seen, secret, check, checksum, unused, *keys = (
        geometry.header.unpack_from(payload)
    )
    if first >> 4 != WIRE_VERSION:
        raise FrameError("VERSION", f"wire version {first >> 4}, this worker speaks {WIRE_VERSION}")
    kind = first & 15
    if not CONTRIBUTE <= kind <= PENDING:
        raise FrameError("TYPE", f"frame type {kind} carries no keys or is unknown")
    if reserved or unused:
        raise FrameError("RESERVED", f"reserved fields are {reserved:#04x} and {unused:#06x}")
    if present >> geometry.columns or len(payload) != geometry.lengths[present]:
        raise FrameError("LENGTH", f"{len(payload)} B with present {present:#04x}")
    if header_checksum(geometry, payload) != checksum:
        raise FrameError("HEADER_CHECKSUM", f"{checksum:#06x} is not the checksum of base header, check and keys")
    blocks = payload[geometry.frame_header_bytes :]
    return Frame(kind, job, present, epoch, slot, round_, seen, secret, check, tuple(keys), blocks)


def header_checksum(geometry: Geometry, frame: bytes) -> int:
    """The Internet checksum over a frame's base header, check word and keys, whatever its checksum field holds.

    A sum of 16-bit words with end-around carry is the number that they spell, modulo 2^16 - 1; it is never 0 here,
    since no version is.
    """
    base, check = frame[:BASE_BYTES], frame[_CHECK_AT:_CHECKSUM_AT]
    total = int.from_bytes(base + check + frame[_KEYS_AT : geometry.frame_header_bytes], "big")
    return 0xFFFF - (total % 0xFFFF or 0xFFFF)
