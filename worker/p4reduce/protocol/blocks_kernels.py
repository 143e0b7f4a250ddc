"""Kernels for blocks without frames: sums in a host's memory, and words that are kept."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from p4reduce.protocol.fence import fence
from p4reduce.protocol.floats import decode, encode, encode_held
from p4reduce.protocol.state import PartLayout
from p4reduce.protocol.words import part_of
from p4reduce_runtime.kernels import kernel
from p4reduce_runtime.records import Table


@kernel("void()")
def order_memory() -> None:
    """Order this process's reads and writes before it and after it, as other processes see them."""
    fence()


@kernel(
    "void(PartLayout[::1], Array(uint32, 1, 'C', True), float64[:, ::1], int64[::1], Array(uint8, 1, 'C', True), "
    "uint32[::1], float32[::1], uint32[:, ::1])"
)
def encode_blocks(
    parts: Table[PartLayout],
    elements: NDArray[np.uint32],
    scales: NDArray[np.float64],
    blocks: NDArray[np.int64],
    exponents: NDArray[np.uint8],
    weights: NDArray[np.uint32],
    spare: NDArray[np.float32],
    words: NDArray[np.uint32],
) -> None:
    """Write the words of `blocks`, each with its exponent, in the order of bytes of a frame. `scales` [parts, 256]."""
    size = np.uint64(words.shape[1])
    for i in range(len(blocks)):
        number = part_of(parts, blocks[i])
        scale = scales[number, exponents[i]]
        encode(parts[number], elements, blocks[i], scale, size, weights, spare, words[i], np.uint64(0))


@kernel(
    "void(PartLayout[::1], Array(uint32, 2, 'C', True), float64[:, ::1], int64[::1], Array(uint8, 1, 'C', True), "
    "float32[::1], uint32[::1])"
)
def decode_blocks(
    parts: Table[PartLayout],
    words: NDArray[np.uint32],
    units: NDArray[np.float64],
    blocks: NDArray[np.int64],
    exponents: NDArray[np.uint8],
    spare: NDArray[np.float32],
    sums: NDArray[np.uint32],
) -> None:
    """Write the sums of `blocks`, of which `words` has what a frame has, and `exponents` the exponents."""
    size = np.uint64(words.shape[1])
    for i in range(len(blocks)):
        number = part_of(parts, blocks[i])
        unit = units[number, exponents[i]]
        decode(parts[number], words[i], np.uint64(0), size, unit, blocks[i], spare, sums)


@kernel(
    "void(PartLayout[::1], Array(uint32, 1, 'C', True), uint64[::1], float64[:, ::1], float64[:, ::1], uint8[::1], "
    "uint64, uint32[:, ::1], float32[::1], uint32[::1], int64)"
)
def sum_held_blocks(
    parts: Table[PartLayout],
    elements: NDArray[np.uint32],
    holders: NDArray[np.uint64],
    scales: NDArray[np.float64],
    units: NDArray[np.float64],
    exponents: NDArray[np.uint8],
    size: np.uint64,
    words: NDArray[np.uint32],
    spare: NDArray[np.float32],
    sums: NDArray[np.uint32],
    copies: int,
) -> None:
    """Write the sums of the blocks of one host's ranks, which are all ranks. `words` [2, block_words] is memory.

    `copies`: how often, as far apart as the ranks' data.
    """
    weights, frame, start = words[0], words[1], np.uint64(0)
    for block in range(len(holders)):
        if holders[block]:
            number, exponent, held = part_of(parts, block), exponents[block], holders[block]
            part = parts[number]
            encode_held(part, elements, held, block, scales[number, exponent], size, weights, spare, frame, start)
            for copy in range(copies):
                to = sums[copy * part.input_words :]
                decode(part, frame, start, size, units[number, exponent], block, spare, to)
