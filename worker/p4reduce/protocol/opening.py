"""Where ranks describe their calls in slot 0's opening frame, and what the sums of these words say about the calls.

Each rank has places of its own while the frame has room for all; else they share places (wire/opening.py), and see only
whether all called the same.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p4reduce.errors import CollectiveMismatchError, Reason
from p4reduce.protocol.call import compare_calls, describe, kind_of, proposed_window
from p4reduce.protocol.refusal import known_reasons
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire.calls import Kind
from p4reduce_contracts.wire.numbers import MAX_GROWTH_BYTES, WORDS_PER_CALL
from p4reduce_contracts.wire.opening import CLASSES, SharedOpening, by_place, opening_words

_WORDS: Final = 8
"""Words that a rank puts into the frame at most (state.Config.opening_words)."""
_NO_WINDOW: Final = 0xFFFF0000
"""The part of a descriptor's second word that is compared."""
Numbers = NDArray[np.uint32]


class Places(NamedTuple):
    """The columns and places of a rank's opening frame of slot 0."""

    columns: int
    """The columns of the RESULT, as a bitmap."""
    own: int
    zeros: int
    """The columns of this rank's frame with words, and those of zeros, so that the RESULT is not too much longer."""
    shared: bool
    """Whether ranks share places."""
    own_places: tuple[int, ...]
    """The places of the four words of a rank that has its own, then -1."""


@functools.lru_cache(64)
def _places(world_size: int, rank: int, block_words: int, columns: int) -> Places:
    count = -(-opening_words(world_size, columns * block_words) // block_words)
    everything = (1 << count) - 1
    if not by_place(world_size, columns * block_words):
        return Places(everything, everything, 0, True, (-1,) * _WORDS)
    first = WORDS_PER_CALL * rank
    own = 1 << first // block_words
    others = [1 << column for column in range(count) if own != 1 << column]
    short = count - 1 - MAX_GROWTH_BYTES // (4 * block_words)
    own_places = (*range(first, first + WORDS_PER_CALL), *(-1,) * (_WORDS - WORDS_PER_CALL))
    return Places(everything, own, sum(others[: max(0, short)]), False, own_places)


def places_of(lease: Lease) -> Places:
    """Return what a rank's opening frame of slot 0 has in which columns."""
    return _places(lease.world_size, lease.rank, lease.block_words, lease.columns)


def digest_of(words: Sequence[int]) -> int:
    """Return the digest of a descriptor without its window."""
    return zlib.crc32(_compared(words).astype(">u4").tobytes())


def shared_words(lease: Lease, words: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shared places that this rank uses for a call with this descriptor, and what it puts there."""
    shared = SharedOpening(lease.world_size)
    row, column = divmod(lease.rank, shared.row_length)
    window_at = shared.windows_at + max(1, proposed_window(words)).bit_length() - 1
    put = words[0], words[1] & _NO_WINDOW, *words[2:], digest_of(words)
    if kind_of(words) == Kind.REFUSED:
        reason_at = shared.reasons_at + min(words[1] >> 16 & 0xFF, CLASSES - 1)
        refusal_at = shared.refusals_at + lease.rank // 32
        return (*(-1,) * 5, window_at, refusal_at, reason_at), (*put, 1, 1 << lease.rank % 32, 1)
    first = WORDS_PER_CALL * row
    return (*range(first, first + WORDS_PER_CALL), shared.digests_at + column, window_at, -1, -1), (*put, 1, 0, 0)


def read_calls(lease: Lease, blocks: bytes, words: Sequence[int]) -> tuple[dict[int, Reason], int]:
    """Return which ranks refused, and why, and everybody's window for the next collective.

    `blocks`: those of slot 0's opening RESULT. `words`: this rank's descriptor. Raises CollectiveMismatchError when the
    ranks that did not refuse did not all call the same.
    """
    if by_place(lease.world_size, lease.geometry.frame_words):
        return compare_calls(read_opening(blocks, lease.world_size))
    return _read_shared(lease, blocks, words)


def read_opening(blocks: bytes, world_size: int) -> list[tuple[int, ...]]:
    """Return the descriptors of all ranks, from blocks in which each has its own place."""
    words = np.frombuffer(blocks, ">u4", WORDS_PER_CALL * world_size)
    return [tuple(row) for row in words.reshape(world_size, WORDS_PER_CALL).tolist()]


def _read_shared(lease: Lease, blocks: bytes, words: Sequence[int]) -> tuple[dict[int, Reason], int]:
    """Return what `read_calls` returns, from the sums of an opening frame in which ranks share places.

    A rank that refuses has no call to compare with: it does not see whether the others called the same.
    """
    ranks, shared = lease.world_size, SharedOpening(lease.world_size)
    sums = np.frombuffer(blocks, ">u4", shared.words).astype(np.uint32)
    starts = [shared.digests_at, shared.refusals_at, shared.windows_at, shared.reasons_at]
    rows, digests, bitmap, windows, reasons = np.split(sums, starts)
    refusing = np.unpackbits(bitmap.astype("<u4").view(np.uint8), bitorder="little")[:ranks].astype(bool)
    reason = Reason(0)
    for code in np.flatnonzero(reasons).tolist():
        reason |= known_reasons(1 << code)
    refusals = dict.fromkeys(np.flatnonzero(refusing).tolist(), reason)
    if not refusing[lease.rank]:
        grid = np.zeros((shared.rows, shared.row_length), np.uint32)
        grid.reshape(-1)[:ranks] = ~refusing
        own, digest = _compared(words), np.uint32(digest_of(words))
        as_rows = (rows.reshape(-1, WORDS_PER_CALL) == grid.sum(axis=1, dtype=np.uint32)[:, None] * own).all()
        alike = as_rows and (digests == grid.sum(axis=0, dtype=np.uint32) * digest).all()
        if not alike or refusals and kind_of(words) == Kind.CLOSE:
            raise CollectiveMismatchError({lease.rank: describe(words)})
    return refusals, 1 << int(np.flatnonzero(windows)[:1].sum())


def _compared(words: Sequence[int]) -> Numbers:
    """Return the part of a descriptor that has to be equal on all ranks, in its places."""
    return np.array([words[0], words[1] & _NO_WINDOW, *words[2:]], np.uint32)
