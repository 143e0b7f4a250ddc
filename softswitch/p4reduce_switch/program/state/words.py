"""Arrays of 64-bit words, and where they are in memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.int64]


def address(array: NDArray[np.generic]) -> int:
    """Return where an array's elements are."""
    return int(array.ctypes.data)
