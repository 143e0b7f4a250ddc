"""Which block comes next: the look-ahead keys of one rank, computed once per collective."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from p4reduce_contracts.wire import KEY_NONE


def keys_at_or_after(nonzero: NDArray[np.bool_], exponents: NDArray[np.uint8], stride: int) -> memoryview:
    """`view[b]`: the key of the first non-zero block at or after block b in b's column.

    A column holds every `stride`-th block (`stride` = columns x slots used). The view is one
    stride longer than the blocks, rounded up, so `view[b + stride]` is the key after block b.
    """
    blocks = len(nonzero)
    rows = -(-blocks // stride)
    keys = np.full((rows + 1) * stride, KEY_NONE, np.uint32)
    held = np.flatnonzero(nonzero)
    keys[held] = (held.astype(np.uint32) << np.uint32(8)) | (255 - exponents[held])
    grid = keys.reshape(rows + 1, stride)
    np.minimum.accumulate(grid[::-1], axis=0, out=grid[::-1])
    return keys.data
