"""Kernels for blocks without frames: sums in a host's memory, and words that are kept."""

from __future__ import annotations

import numpy as np

from p4reduce.protocol.floats import add_float32, decode, encode, encode_held, store_float32
from p4reduce.protocol.state import FLOAT32, UNTOUCHED, PartLayout, Words
from p4reduce.protocol.words import part_of
from p4reduce_runtime.kernels import kernel
from p4reduce_runtime.records import Matrix, ReadOnly, ReadOnlyMatrix, Table, Vector


@kernel()
def encode_blocks(
    parts: Table[PartLayout],
    elements: ReadOnly[np.uint32],
    scales: Matrix[np.float64],
    blocks: Vector[np.int64],
    exponents: ReadOnly[np.uint8],
    weights: Words,
    spare: Vector[np.float32],
    words: Matrix[np.uint32],
) -> None:
    """Write the words of `blocks`, each with its exponent, in the order of bytes of a frame. `scales` [parts, 256]."""
    size = np.uint64(words.shape[1])
    for i in range(len(blocks)):
        number = part_of(parts, blocks[i])
        scale = scales[number, exponents[i]]
        encode(parts[number], elements, blocks[i], scale, size, weights, spare, words[i], np.uint64(0))


@kernel()
def decode_blocks(
    parts: Table[PartLayout],
    words: ReadOnlyMatrix[np.uint32],
    units: Matrix[np.float64],
    blocks: Vector[np.int64],
    exponents: ReadOnly[np.uint8],
    spare: Vector[np.float32],
    sums: Words,
) -> None:
    """Write the sums of `blocks`, of which `words` has what a frame has, and `exponents` the exponents."""
    size = np.uint64(words.shape[1])
    for i in range(len(blocks)):
        number = part_of(parts, blocks[i])
        unit = units[number, exponents[i]]
        decode(parts[number], words[i], np.uint64(0), size, unit, blocks[i], spare, sums)


@kernel(separate=True)
def _agree(
    exponents: Vector[np.uint8],
    nonzero: Vector[np.uint8],
    area: int,
    ranks: int,
    first: int,
    holders: Vector[np.uint64],
    agreed: Vector[np.uint8],
) -> None:
    """Set which ranks hold each block from `first` on, as a bitmap, and the exponents of the sums."""
    count = len(holders)
    for i in range(count):
        holders[i] = 0
        agreed[np.uint64(first + i)] = 0
    for rank in range(ranks):
        at = np.uint64(rank * area + first)
        for i in range(count):
            held = nonzero[at + np.uint64(i)]
            exponent = np.uint8(exponents[at + np.uint64(i)] * held)
            agreed[np.uint64(first + i)] = max(agreed[np.uint64(first + i)], exponent)
            holders[i] |= np.uint64(held) << np.uint64(rank)
    for i in range(count):
        if holders[i] == 0:
            agreed[np.uint64(first + i)] = UNTOUCHED


@kernel(separate=True)
def _sum_float32(  # noqa: PLR0917
    part: PartLayout,
    own_parts: Table[PartLayout],
    elements: ReadOnly[np.uint32],
    own: ReadOnly[np.uint32],
    place: int,
    begins: Vector[np.int64],
    first: int,
    holders: Vector[np.uint64],
    exponents: Vector[np.uint8],
    scales: Vector[np.float64],
    units: Vector[np.float64],
    size: np.uint64,
    words: Words,
    sums: Words,
    sums_at: Vector[np.int64],
    found: Words,
) -> None:
    """Do what `sum_held_blocks` does for blocks of one part of float32 in 32 bits, without frames."""
    numbers, mine = elements.view(np.float32), own.view(np.float32)
    ranks, length = len(begins), np.uint64(len(own))
    kept_begin = kept_end = own_begin = 0
    if length:
        kept_begin, kept_end, own_begin = own_parts[0].kept_begin, own_parts[0].kept_end, own_parts[0].sums_begin
    else:
        place = ranks
    for i in range(len(holders)):
        held = holders[i]
        row = first + i - part.first_block
        begin = np.uint64(row) * size
        at = np.uint64(part.begin) + begin
        count = min(size, np.uint64(part.end) - at)
        own_count = min(count, length - begin)  # memory has zeros there, up to the end of the block
        scale, unit = scales[exponents[i]], units[exponents[i]]
        for j in range(size):
            words[j] = 0
        for rank in range(ranks):
            if held >> np.uint64(rank) & np.uint64(1):
                is_own, to = rank == place, at + np.uint64(begins[rank])
                add_float32(
                    mine if is_own else numbers, begin if is_own else to, own_count if is_own else count, scale, words
                )
        for i in range(len(sums_at) if held else 0):
            to = np.uint64(part.sums_begin) + begin + np.uint64(sums_at[i])
            store_float32(words, count, unit, sums.view(np.float32), to)
        if kept_begin <= row < kept_end:
            store_float32(words, own_count, unit, found.view(np.float32), np.uint64(own_begin) + begin)


@kernel()
def sum_held_blocks(  # noqa: PLR0917
    parts: Table[PartLayout],
    own_parts: Table[PartLayout],
    elements: ReadOnly[np.uint32],
    own: ReadOnly[np.uint32],
    place: int,
    begins: Vector[np.int64],
    exponents: Vector[np.uint8],
    nonzero: Vector[np.uint8],
    first: int,
    holders: Vector[np.uint64],
    scales: Matrix[np.float64],
    units: Matrix[np.float64],
    size: np.uint64,
    words: Matrix[np.uint32],
    spare: Vector[np.float32],
    sums: Words,
    sums_at: Vector[np.int64],
    found: Words,
    agreed: Vector[np.uint8],
) -> None:
    """Write the sums of `len(holders)` blocks of one host's ranks, which are all ranks, and their exponents.

    `begins`: the words from which the ranks' words are counted. `exponents`, `nonzero`: those of the ranks' blocks, as
    far apart as their memory. `agreed`: the exponents of the sums. `holders` and `words` [2, block_words] are memory.
    `sums_at`: the offset in `sums`, in words, of each copy of the result; a block's sum is stored in all.

    With `own_parts`, of one part of float32 in 32 bits, the data of the rank at `place` is in `own`, and its results
    are written to `found` too.
    """
    weights, frame, start = words[0], words[1], np.uint64(0)
    area, ranks, last = 4 * parts[0].input_words, len(begins), first + len(holders)
    _agree(exponents, nonzero, area, ranks, first, holders, agreed)
    block = first
    while block < last:
        number = part_of(parts, block)
        part, end = parts[number], last
        if number + 1 < len(parts):
            end = min(last, parts[number + 1].first_block)
        if part.lanes == 1 and part.form == FLOAT32 and part.decodes:
            held, fields = holders[block - first : end - first], agreed[block:end]
            _sum_float32(
                part,
                own_parts,
                elements,
                own,
                place,
                begins,
                block,
                held,
                fields,
                scales[number],
                units[number],
                size,
                frame,
                sums,
                sums_at,
                found,
            )
            block = end
            continue
        while block < end:
            bits, scale, unit = holders[block - first], scales[number, agreed[block]], units[number, agreed[block]]
            if bits:
                encode_held(part, elements, begins, bits, block, scale, size, weights, spare, frame, start)
                for begin in sums_at:
                    decode(part, frame, start, size, unit, block, spare, sums[begin:])
            block += 1
