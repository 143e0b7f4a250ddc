"""The kinds and codecs of collectives, as the ranks' call descriptors number them."""

from __future__ import annotations

from enum import IntEnum


class Kind(IntEnum):
    """The kind of a collective; `ALL_REDUCE` also covers all_reduce_segments."""

    ALL_REDUCE = 1
    BROADCAST = 2
    ALL_GATHER = 3
    BARRIER = 4
    CLOSE = 5
    REFUSED = 6
    """The kind of a call of a rank that cannot take part in the collective."""


class CodecId(IntEnum):
    """The number of a codec, which makes words of numbers."""

    NONE = 0
    FLOAT32 = 1
    INT32 = 2
    LANES = 3
    RAW = 4
    SEGMENTS = 5
