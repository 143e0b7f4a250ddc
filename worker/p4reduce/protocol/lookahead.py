"""Which block comes next: the look-ahead keys of one rank, computed once per collective. Kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from p4reduce.protocol.state import Words
from p4reduce_contracts.wire.numbers import KEY_BLOCK_SHIFT, KEY_NONE
from p4reduce_runtime.kernels import kernel
from p4reduce_runtime.records import Vector


@kernel()
def look_ahead(nonzero: Vector[np.bool_], exponents: Vector[np.uint8], stride: int, keys: Words) -> int:
    """Set `keys` [at least blocks + stride]: the key of the first held block at or after each in its column.

    A column holds every `stride`-th block (`stride` = columns x slots used). Return how many blocks are held.
    """
    count, found = len(nonzero), 0
    for block in range(count, len(keys)):
        keys[block] = np.uint32(KEY_NONE)
    for begin in range((count - 1) // stride * stride, -1, -stride):
        row, later = keys[begin : begin + stride], keys[begin + stride : begin + 2 * stride]
        held, fields = nonzero[begin : begin + stride], exponents[begin : begin + stride]
        for place in range(min(stride, count - begin)):  # no two of a row are of one column: several at a time
            own = np.uint32(begin + place) << np.uint32(8) | (np.uint32(255) - np.uint32(fields[place]))
            chosen = np.uint32(0xFFFFFFFF) * np.uint32(held[place])
            row[place] = own & chosen | later[place] & ~chosen
            found += held[place]
    return found


@kernel()
def next_key(keys: Words, begin: int, stride: int, blocks: int) -> int:
    """Return the key of the first held block of `blocks` at `begin`, or a multiple of `stride` after it.

    `stride` is that of `keys` or a multiple.
    """
    while begin < blocks:
        key: Any = np.int64(keys[begin])
        beyond: Any = ((key >> KEY_BLOCK_SHIFT) - begin) % stride
        if key == KEY_NONE or beyond == 0:
            return int(key)
        begin = (key >> KEY_BLOCK_SHIFT) + stride - beyond
    return KEY_NONE
