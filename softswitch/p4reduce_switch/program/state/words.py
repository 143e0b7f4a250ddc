"""Arrays of 64-bit words, and their addresses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.int64]


def address(array: NDArray[np.generic]) -> int:
    """Return the address of an array's elements."""
    return int(array.ctypes.data)
