"""Raw bytes: moved bit for bit, each block held by one rank only, so that its sum is a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p4reduce.errors import InvalidTensorError
from p4reduce.protocol.blocks import Array, Blocks, Part, nonzero_blocks
from p4reduce.protocol.state import UNTOUCHED
from p4reduce_contracts.wire.calls import CodecId


def block_count(n_bytes: int, block_words: int) -> int:
    """Blocks that `n_bytes` take."""
    return -(-n_bytes // (4 * block_words))


def raw_blocks(
    data: NDArray[np.uint8],
    block_words: int,
    capacity: int,
    sender: int | None = 0,
    senders: int = 1,
    finish: Callable[[NDArray[np.uint8]], Any] = np.asarray,
) -> Blocks:
    """Return this rank's bytes, in blocks that are its own among those of `senders` ranks; blocks of zeros not sent.

    `capacity`: the longest a sender's bytes may be; `sender`: None when this rank sends nothing. `finish` makes the
    result of all bytes, uint8 [senders, L]: L is as many whole blocks as some rank's bytes reach.

    Block i of sender s is block i · senders + (s + i) mod senders of the space. So every frame carries blocks of many
    ranks, which keeps it from growing on the switch (protocol/contribute.py), and one rank's blocks still spread over
    the columns.
    """
    nonzero = np.zeros(senders * block_count(capacity, block_words), bool)
    words = np.concatenate([data, np.zeros(-len(data) % 4, np.uint8)]).view("<u4")
    if sender is not None:
        own = nonzero_blocks(words, block_words)
        nonzero[_places(len(own), sender, senders)] = own

    def rows(_: Part, sums: NDArray[np.uint32], exponents: NDArray[np.uint8]) -> Any:
        touched = np.flatnonzero(exponents != UNTOUCHED)
        longest = int(touched[-1]) // senders + 1 if len(touched) else 0
        places = _places(longest, np.arange(senders)[:, None], senders)
        found = sums.reshape(-1, block_words)[places].astype("<u4", copy=False)
        found[exponents[places] == UNTOUCHED] = 0
        return finish(found.reshape(senders, -1).view(np.uint8))

    exponents = np.zeros(len(nonzero), np.uint8)
    return Blocks([Part(words, block_words, nonzero, exponents, rows, step=senders, clears=True)])


def _places(count: int, sender: int | NDArray[np.int64], senders: int) -> NDArray[np.int64]:
    """Return the places of a sender's first `count` blocks; of several, [senders, 1], a row each."""
    i = np.arange(count)
    return i * senders + (sender + i) % senders


def first_bytes(rows: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """The first `size` bytes of each row; zeros where a row is shorter."""
    missing = max(0, size - rows.shape[1])
    return np.pad(rows, ((0, 0), (0, missing)))[:, :size]


class Gathered:
    """Every rank's bytes, of any length up to `capacity`: an all-gather among the segments of an all-reduce.

    No rank needs the length of the others' bytes: what they did not fill is not sent. The result is uint8
    [world_size, L], L the longest in whole blocks; zeros follow what a rank gave.
    """

    codec = CodecId.RAW
    detail = 0

    def __init__(self, data: NDArray[np.uint8], capacity: int, rank: int, *, name: str | None = None) -> None:
        """`capacity` in bytes, equal on all ranks; InvalidTensorError when `data` is longer."""
        if len(data) > capacity:
            raise InvalidTensorError(
                f"{name or 'the bytes'}: {len(data)} B, more than the {capacity} B all ranks agreed on"
            )
        self._data = data
        self._rank = rank
        self.elements = capacity
        self.layout = f"gathered[{capacity}]"

    def bind(self, world_size: int, block_words: int, dense: bool) -> Blocks:
        return raw_blocks(self._data, block_words, self.elements, self._rank, world_size, self.finish)

    def finish(self, rows: NDArray[np.uint8]) -> Any:
        """Make the result of all ranks' bytes, [world_size, L]."""
        return rows


def bytes_of(array: Array) -> NDArray[np.uint8]:
    """The bytes of a C-contiguous array, as a flat array."""
    return array.reshape(-1).view(np.uint8) if array.size else np.zeros(0, np.uint8)
