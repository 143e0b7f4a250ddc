"""The frame: what a UDP datagram between a worker and the switch holds.

`p4src/shared/wire.p4` is the truth; this module mirrors it and a test compares the two.
All fields are big-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from p4reduce.errors import FrameError, GeometryMismatch

AGGREGATION_PORT: Final = 21072
WIRE_VERSION: Final = 1

CONTRIBUTE: Final = 1
RESULT: Final = 2
PENDING: Final = 3
HELLO: Final = 4
TYPE_NAMES: Final = {CONTRIBUTE: "CONTRIBUTE", RESULT: "RESULT", PENDING: "PENDING", HELLO: "HELLO"}

KEY_NONE: Final = 0xFFFFFFFF
BLOCK_BITS: Final = 24
MAX_BLOCKS: Final = (1 << BLOCK_BITS) - 1
"""Blocks a collective can hold: the key of block 2^24 - 1 with exponent 0 would read as KEY_NONE."""

BASE_BYTES: Final = 16
NONCE_BYTES: Final = 8
HEADERS_BYTES: Final = 14 + 20 + 8
"""Ethernet, IPv4 (no options) and UDP headers around every frame."""

MAX_GROWTH_BYTES: Final = 512
"""How much longer than a contribution the RESULT that answers it may be: see protocol/growth.py."""

MAX_RANKS: Final = 32
MAX_COLUMNS: Final = 8
ROUND_MASK: Final = 0xFFFFFFFF

FRAME_FAULTS: Final = ("TRUNCATED", "LENGTH", "VERSION", "TYPE", "RESERVED")

_BASE = struct.Struct(">BBBBHHII")
_NONCE = struct.Struct(">Q")


@dataclass(frozen=True)
class Geometry:
    """The frame shape a P4 program was compiled with: columns in a frame, 32-bit words in a block."""

    columns: int
    block_words: int
    header: struct.Struct = field(init=False, repr=False, compare=False)
    lengths: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 1 <= self.columns <= MAX_COLUMNS:
            raise GeometryMismatch(f"a frame has 1 to {MAX_COLUMNS} columns, not {self.columns}")
        if self.block_words < 4 or self.block_words % 4:
            raise GeometryMismatch(f"a block has a multiple of 4 words, not {self.block_words}")
        object.__setattr__(self, "header", struct.Struct(f">BBBBHHII{self.columns}I"))
        lengths = tuple(self.header_bytes + self.block_bytes * mask.bit_count() for mask in range(256))
        object.__setattr__(self, "lengths", lengths)

    @property
    def block_bytes(self) -> int:
        return 4 * self.block_words

    @property
    def header_bytes(self) -> int:
        """Bytes of a frame without blocks."""
        return BASE_BYTES + 4 * self.columns

    @property
    def frame_words(self) -> int:
        """Words of all the blocks of a full frame."""
        return self.columns * self.block_words

    @property
    def max_frame_bytes(self) -> int:
        return self.header_bytes + self.columns * self.block_bytes


DEFAULT: Final = Geometry(8, 32)
SMALL: Final = Geometry(4, 8)


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
    if len(payload) < geometry.header_bytes:
        raise FrameError("TRUNCATED", f"{len(payload)} B, a header is {geometry.header_bytes} B")
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
    blocks = payload[geometry.header_bytes :]
    return Frame(kind, job, present, epoch, slot, round_, seen, tuple(keys), blocks)


def pack_hello(job: int, nonce: int) -> bytes:
    """The frame that shows the controller, through the switch, where a member is attached."""
    return _BASE.pack(WIRE_VERSION << 4 | HELLO, job, 0, 0, 0, 0, 0, 0) + _NONCE.pack(nonce)


def unpack_hello(payload: bytes) -> tuple[int, int]:
    """(job, nonce) of a HELLO frame; FrameError says which check failed."""
    if len(payload) < BASE_BYTES:
        raise FrameError("TRUNCATED", f"{len(payload)} B, a header is {BASE_BYTES} B")
    first, job, *zero = _BASE.unpack_from(payload)
    if first >> 4 != WIRE_VERSION:
        raise FrameError("VERSION", f"wire version {first >> 4}, this worker speaks {WIRE_VERSION}")
    if first & 15 != HELLO:
        raise FrameError("TYPE", f"frame type {first & 15} is not HELLO")
    if len(payload) != BASE_BYTES + NONCE_BYTES:
        raise FrameError("LENGTH", f"{len(payload)} B, a HELLO is {BASE_BYTES + NONCE_BYTES} B")
    if any(zero):
        raise FrameError("RESERVED", "a HELLO has no slot, round, epoch or blocks")
    return job, _NONCE.unpack_from(payload, BASE_BYTES)[0]
