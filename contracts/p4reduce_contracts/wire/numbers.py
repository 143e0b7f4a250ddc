"""The numbers of the wire, each of them once. `p4src/shared/wire.p4` is the truth; a test compares the two."""

from __future__ import annotations

import struct
from typing import Final

WIRE_VERSION: Final = 2

CONTRIBUTE: Final = 1
RESULT: Final = 2
PENDING: Final = 3
HELLO: Final = 4
TYPE_NAMES: Final = {CONTRIBUTE: "CONTRIBUTE", RESULT: "RESULT", PENDING: "PENDING", HELLO: "HELLO"}

# A frame as words of 32 bits: the index of a field's word, and its lowest bit there where the word has several fields.
TYPE_WORD: Final = 0
VERSION_SHIFT: Final = 28
TYPE_SHIFT: Final = 24
TYPE_MASK: Final = 15
JOB_SHIFT: Final = 16
PRESENT_SHIFT: Final = 8
"""The level is below it, in the lowest byte."""
SLOT_WORD: Final = 1
EPOCH_SHIFT: Final = 16
SLOT_MASK: Final = 0xFFFF
ROUND_WORD: Final = 2
SEEN_WORD: Final = 3
SECRET_WORD: Final = 4
"""The index of the first of two words, the upper half of the secret."""
CHECK_WORD: Final = 6
GUARD_WORD: Final = 7
CHECKSUM_SHIFT: Final = 16
"""The guard's lower 16 bits are reserved: 0."""
KEYS_WORD: Final = 8
JOB_BYTE: Final = 1
PRESENT_BYTE: Final = 2
SLOT_BYTES: Final = slice(6, 8)

KEY_NONE: Final = 0xFFFFFFFF
KEY_BLOCK_SHIFT: Final = 8
"""A key's lowest byte is 255 less the exponent."""
KEY_BLOCK_BITS: Final = 24
MAX_BLOCKS: Final = (1 << KEY_BLOCK_BITS) - 1
"""Blocks a collective can hold: the key of block 2^24 - 1 with exponent 0 would read as KEY_NONE."""

BASE: Final = struct.Struct(">BBBBHHII")
"""The fields that all frames have: version and type, job, present, level, epoch, slot, round and seen."""
BASE_BYTES: Final = BASE.size
GUARD_BYTES: Final = 16
NONCE_BYTES: Final = 8

MAX_GROWTH_BYTES: Final = 512
"""Bytes by which a RESULT may be longer than the contribution that it answers: BMv2's limit (docs/protocol.md)."""

MAX_CHILDREN: Final = 32
"""Bits of `seen`: ranks and switches that contribute to one switch."""
MAX_RANKS: Final = 1024
"""Ranks of one job: two levels of switches with 32 children each."""
MAX_COLUMNS: Final = 8
"""Bits of `present`."""
MAX_BLOCK_WORDS: Final = 256
MAX_SLOTS: Final = 32768
WORDS_PER_CALL: Final = 4
"""Words each rank's call descriptor takes in the opening frame of slot 0."""
ROUND_MASK: Final = 0xFFFFFFFF
SECRET_BITS: Final = 64
MAX_JOBS: Final = 255
"""Job ids are 1 to 255."""

DROP_REASONS: Final = {
    1: "TRUNCATED",
    2: "LENGTH",
    3: "VERSION",
    4: "TYPE",
    5: "NOT_ADMITTED",
    6: "EPOCH",
    7: "SLOT",
    8: "STALE",
    9: "CHECKSUM",
    10: "FRAGMENT",
    11: "RESERVED",
    12: "NOT_SERVED",
    13: "HEADER_CHECKSUM",
    14: "SPOOFED",
    15: "RATE",
}
"""Index in the switch's counter of dropped frames -> why."""
