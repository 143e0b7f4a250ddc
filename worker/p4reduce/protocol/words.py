"""Words and blocks: what the kernels that read frames and those that make them share."""

from __future__ import annotations

import numpy as np

from p4reduce.protocol.state import PartLayout
from p4reduce_runtime.kernels import kernel
from p4reduce_runtime.records import Table


@kernel()
def swap(word: np.uint32) -> np.uint32:
    """Return a word in the other byte order."""
    high = (word << np.uint32(24)) | ((word & np.uint32(0xFF00)) << np.uint32(8))
    low = ((word >> np.uint32(8)) & np.uint32(0xFF00)) | (word >> np.uint32(24))
    return np.uint32(high | low)


@kernel()
def part_of(parts: Table[PartLayout], block: int) -> int:
    """Return the part that a block is of: the last one that begins at it or before."""
    low, high = 0, len(parts)
    while high - low > 1:
        middle = (low + high) >> 1
        if parts[middle].first_block <= block:
            low = middle
        else:
            high = middle
    return low
