"""Where ranks describe their calls in slot 0's opening frame, and what the sums of these words say about the calls.

Each rank has places of its own while the frame has room for all; else they share places (wire/opening.py). All ranks
then see whether all called the same, and name one rank that called another, with what it called.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p4reduce.errors import CollectiveMismatchError, Reason
from p4reduce.protocol.call import Kind, compare_calls, describe, kind_of, proposed_window
from p4reduce.protocol.refusal import reason_of_code
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire import MAX_GROWTH_BYTES, WORDS_PER_CALL
from p4reduce_contracts.wire.opening import CLASSES, SharedOpening, by_place, opening_words

_WORDS: Final = 8
"""A rank puts so many words into the frame at most (state.Config.opening_words)."""
_NO_WINDOW: Final = 0xFFFF0000
"""The part of a descriptor's second word that is compared."""
Numbers = NDArray[np.uint32]


class Places(NamedTuple):
    """What a rank's opening frame of slot 0 has in which columns."""

    columns: int
    """Of the RESULT, as a bitmap."""
    own: int
    zeros: int
    """Of this rank's frame: those with words, and those of zeros, so that the RESULT is not too much longer."""
    row_length: int
    """Of shared places; 0: each rank has its own."""
    own_places: tuple[int, ...]
    """Of a rank that has its own: its four words, then -1."""


@functools.lru_cache(64)
def _places(world_size: int, rank: int, block_words: int, columns: int) -> Places:
    count = -(-opening_words(world_size, columns * block_words) // block_words)
    everything = (1 << count) - 1
    if not by_place(world_size, columns * block_words):
        return Places(everything, everything, 0, SharedOpening(world_size).row_length, (-1,) * _WORDS)
    first = WORDS_PER_CALL * rank
    own = 1 << first // block_words
    others = [1 << column for column in range(count) if own != 1 << column]
    short = count - 1 - MAX_GROWTH_BYTES // (4 * block_words)
    own_places = (*range(first, first + WORDS_PER_CALL), *(-1,) * (_WORDS - WORDS_PER_CALL))
    return Places(everything, own, sum(others[: max(0, short)]), 0, own_places)


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
    return _SharedSums(lease.world_size, blocks).compare(lease.rank, words)


def read_opening(blocks: bytes, world_size: int) -> list[tuple[int, ...]]:
    """Return the descriptors of all ranks, from blocks in which each has its own place."""
    words = np.frombuffer(blocks, ">u4", WORDS_PER_CALL * world_size)
    return [tuple(row) for row in words.reshape(world_size, WORDS_PER_CALL).tolist()]


class _SharedSums:
    """The sums of an opening frame in which ranks share places."""

    def __init__(self, ranks: int, blocks: bytes) -> None:
        shared = SharedOpening(ranks)
        words = np.frombuffer(blocks, ">u4", shared.words).astype(np.uint32)
        parts = np.split(words, [shared.digests_at, shared.refusals_at, shared.windows_at, shared.reasons_at])
        self.ranks, self.row_length = ranks, shared.row_length
        self.rows, self.digests = parts[0].reshape(-1, WORDS_PER_CALL), parts[1]
        self.refusing = np.unpackbits(parts[2].astype("<u4").view(np.uint8), bitorder="little")[:ranks].astype(bool)
        grid = np.zeros((shared.rows, shared.row_length), np.uint32)
        grid.reshape(-1)[:ranks] = ~self.refusing
        self.in_row, self.in_column = grid.sum(axis=1, dtype=np.uint32), grid.sum(axis=0, dtype=np.uint32)
        """How many ranks of each did not refuse."""
        self.windows, self.reasons = parts[3], parts[4]

    def compare(self, rank: int, words: Sequence[int]) -> tuple[dict[int, Reason], int]:
        """Return what `read_calls` returns.

        A rank that refuses does not know the call that it compares, and may not see that only the last bits differ.
        """
        reason = Reason(0)
        for code in np.flatnonzero(self.reasons).tolist():
            reason |= reason_of_code(code)
        refusals = dict.fromkeys(np.flatnonzero(self.refusing).tolist(), reason)
        own = None if self.refusing[rank] else _compared(words)
        for common in self._guesses(rank, own):
            calls = self._calls(common)
            if calls is None:
                continue
            if len(set(calls.values())) > 1 or refusals and kind_of(common.tolist()) == Kind.CLOSE:
                said = {other: describe(called) for other, called in calls.items()}
                raise CollectiveMismatchError(said | {other: _refusal(why) for other, why in refusals.items()})
            return refusals, self._window()
        if own is not None:
            alone = self._differs_alone(rank, own)
            candidates = [] if alone else [other for other in self._candidates(own) if other != rank]
            raise CollectiveMismatchError({rank: describe(own.tolist())}, candidates)
        if not _alike(self.rows, self.in_row) or not _alike(self.digests[:, None], self.in_column):
            raise CollectiveMismatchError({rank: _refusal(reason)}, np.flatnonzero(~self.refusing).tolist())
        return refusals, self._window()

    def _window(self) -> int:
        return 1 << int(np.flatnonzero(self.windows)[:1].sum())

    def _guesses(self, rank: int, own: Numbers | None) -> list[Numbers]:
        """Return what all ranks, or all but one, may have called: this rank's call, and what the sums of rows tell."""
        odd = self.in_row & 1 == 1
        found = [_divided(row, count) for row, count in zip(self.rows[odd], self.in_row[odd].tolist(), strict=True)]
        guesses = [] if own is None else [own]
        guesses += sorted(found, key=lambda call: -sum(np.array_equal(call, other) for other in found))[:1]
        mine = rank // self.row_length
        if own is not None and not odd[mine]:
            guesses.append(_divided(self.rows[mine] - own, int(self.in_row[mine]) - 1))
        return guesses

    def _differing(self, common: Numbers) -> tuple[list[int], list[int]]:
        """Return the rows and the columns whose sums are not those of this call."""
        digest = np.uint32(digest_of(common.tolist()))
        rows = np.flatnonzero((self.rows != self.in_row[:, None] * common).any(axis=1))
        columns = np.flatnonzero(self.digests != self.in_column * digest)
        return rows.tolist(), columns.tolist()

    def _calls(self, common: Numbers) -> dict[int, tuple[int, ...]] | None:
        """Return what each rank called that did not refuse, if that is `common` for all of them but one at most."""
        rows, columns = self._differing(common)
        calls = dict.fromkeys(np.flatnonzero(~self.refusing).tolist(), tuple(common.tolist()))
        if not rows and not columns:
            return calls
        if len(rows) != 1 or len(columns) != 1:
            return None
        (row,), (column,) = rows, columns
        odd = row * self.row_length + column
        other = self.rows[row] + common - self.in_row[row] * common
        rest = (int(self.in_column[column]) - 1) * digest_of(common.tolist())
        if odd not in calls or (rest + digest_of(other.tolist())) & 0xFFFFFFFF != self.digests[column]:
            return None
        calls[odd] = tuple(other.tolist())
        return calls

    def _differs_alone(self, rank: int, own: Numbers) -> bool:
        """Return whether the sums without this rank can be those of ranks that all called the same."""
        row, column = divmod(rank, self.row_length)
        row_places = np.arange(len(self.in_row)) == row
        column_places = np.arange(self.row_length) == column
        rows = self.rows - row_places[:, None] * own
        digests = self.digests - column_places * np.uint32(digest_of(own.tolist()))
        return _alike(rows, self.in_row - row_places) and _alike(digests[:, None], self.in_column - column_places)

    def _candidates(self, common: Numbers) -> list[int]:
        """Return the ranks among which all are that called another collective than this one."""
        rows, columns = self._differing(common)
        chosen = np.ones((len(self.in_row), self.row_length), bool)
        if rows:
            chosen &= np.isin(np.arange(len(self.in_row)), rows)[:, None]
        if columns:
            chosen &= np.isin(np.arange(self.row_length), columns)
        found: list[int] = np.flatnonzero(chosen.reshape(-1)[: self.ranks] & ~self.refusing).tolist()
        return found


def _compared(words: Sequence[int]) -> Numbers:
    """Return the part of a descriptor that has to be equal on all ranks, in its places."""
    return np.array([words[0], words[1] & _NO_WINDOW, *words[2:]], np.uint32)


def _divided(total: Numbers, count: int) -> Numbers:
    """Return the words of which `count` times, an odd number, is `total` modulo 2^32."""
    return total * np.uint32(pow(count, -1, 1 << 32))


def _alike(sums: Numbers, counts: Numbers) -> bool:
    """Return whether sums of so many numbers each can be those of the same numbers."""
    held = np.flatnonzero(counts)
    if not len(held):
        return True
    least = held[np.argmin(counts[held] & -counts[held])]
    return bool((sums * counts[least] == counts[:, None] * sums[least]).all())


def _refusal(reason: Reason) -> str:
    return f"a refusal for {reason}"
