"""The wire under one name, for tests that use much of it, and what only tests compute of a frame."""

# ruff: noqa: F403, F405
from __future__ import annotations

import numpy as np

from p4reduce_contracts.wire.check import weights
from p4reduce_contracts.wire.checksum import *
from p4reduce_contracts.wire.frames import *
from p4reduce_contracts.wire.geometry import *
from p4reduce_contracts.wire.hello import *
from p4reduce_contracts.wire.numbers import *
from p4reduce_runtime.underlay import *


def key_of(block: int, exponent: int) -> int:
    """The look-ahead key: the smallest block wins, and among its holders the largest exponent."""
    return block << KEY_BLOCK_SHIFT | (255 - exponent)


def check_of(present: int, blocks: bytes, block_words: int) -> int:
    """The check word of the blocks of `present`'s columns, lowest column first."""
    words = np.frombuffer(blocks, ">u4").astype(np.uint32)
    return int(np.dot(words, weights(present, block_words)))
