"""How the ranks describe their calls in slot 0's opening frame (docs/protocol.md).

By place while the frame has room for it: rank r's four words are the words 4r to 4r + 3. Beyond, ranks share places.
"""

from __future__ import annotations

import functools
from typing import Final, NamedTuple

from p4reduce_contracts.wire.numbers import MAX_RANKS, WORDS_PER_CALL

MOST_ROWS: Final = 32
CLASSES: Final = 16
"""Classes of proposed windows (word i: 2^i up to below 2^(i+1)), and reasons of refusals, that are counted."""


def by_place(world_size: int, frame_words: int) -> bool:
    """Return whether each rank has places of its own in a frame of so many words."""
    return WORDS_PER_CALL * world_size <= frame_words


class SharedOpening(NamedTuple):
    """The places that the descriptions of `ranks` ranks share. Rank r is in row r // row_length, column r % row_length.

    The words, in this order: by row, the sum of the four words of a description, without its window; by column, the
    sum of the descriptions' digests; a bitmap of the ranks that refuse, which are in no sum before; how many ranks
    propose a window of each class; how many refuse for each reason.
    """

    ranks: int

    @property
    def row_length(self) -> int:
        return -(-self.ranks // MOST_ROWS)

    @property
    def rows(self) -> int:
        return -(-self.ranks // self.row_length)

    @property
    def digests_at(self) -> int:
        return WORDS_PER_CALL * self.rows

    @property
    def refusals_at(self) -> int:
        return self.digests_at + self.row_length

    @property
    def windows_at(self) -> int:
        return self.refusals_at + -(-self.ranks // 32)

    @property
    def reasons_at(self) -> int:
        return self.windows_at + CLASSES

    @property
    def words(self) -> int:
        return self.reasons_at + CLASSES


def opening_words(world_size: int, frame_words: int) -> int:
    """Return how many words of a frame of `frame_words` describe the calls of all ranks."""
    return WORDS_PER_CALL * world_size if by_place(world_size, frame_words) else SharedOpening(world_size).words


@functools.cache
def most_ranks(frame_words: int) -> int:
    """Return up to how many ranks describe their calls in a frame of so many words."""
    ranks = min(MAX_RANKS, frame_words // WORDS_PER_CALL)
    while ranks < MAX_RANKS and SharedOpening(ranks + 1).words <= frame_words:
        ranks += 1
    return ranks
