"""The copies of a rank's data and sums, piece by piece, while a shard of them is on the link."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p4reduce.paths.hosts.layout import HostLayout
from p4reduce.paths.hosts.memory import HostMemory, Words
from p4reduce.paths.hosts.plan import HostPlan, span_of
from p4reduce.paths.hosts.state import ALL, ALL_BLOCKS
from p4reduce.protocol.blocks import Blocks, Layout
from p4reduce.protocol.collective import Collective

PIECE_WORDS: Final = 1 << 18
"""Words of frames that a rank copies at a time: an equal share of each shard."""
BRIEF_S: Final = 300e-6
"""Seconds that a rank takes part in a collective before it copies the next piece in."""
_PAUSE_S: Final = 10e-3
"""Seconds that it takes part before it looks for sums to copy out."""


class Copies:
    """The copies that a rank makes in one collective."""

    def __init__(self, layout: HostLayout, memory: HostMemory, place: int, plan: HostPlan) -> None:
        """`layout` has begun."""
        self.layout, self._memory, self._place = layout, memory, place
        self._spans = [span_of(shard, plan.shards, layout.n_blocks) for shard in range(plan.shards)]
        """The blocks of each shard."""
        words = layout.parts[0].block_words if layout.parts else 1
        self._piece = max(1, PIECE_WORDS // (words * plan.shards))
        """Blocks of each shard that are copied at a time."""
        self._copied_in, self._copied_out = 0, [0] * plan.shards
        self._end = max(last - first for first, last in self._spans)
        self._piece_in = self._piece if layout.copies_in == ALL else max(1, self._end)
        """Blocks of each shard that are copied in at a time; all where nothing is copied."""
        many = layout.n_blocks * words >= 4 * PIECE_WORDS
        self.pause_s = _PAUSE_S if layout.copies_out == ALL and many else math.inf
        """Seconds between two looks for sums to copy out; copying the few at the end takes less time than looking."""

    def copy_in(self) -> bool:
        """Copy the next piece in, and tell the other ranks; return whether there was one."""
        begin = self._copied_in
        if begin >= self._end:
            return False
        self._copied_in = end = begin + self._piece_in
        for first, last in self._spans if self.layout.copies_in == ALL else ():
            self.layout.copy_in(min(first + begin, last), min(first + end, last))
        self._memory.set_published(self._place, end if end < self._end else ALL_BLOCKS)
        return True

    def copy_out(self, number: int) -> None:
        """Copy out what is finished of sum `number`, not less than a piece but at the end."""
        for shard, (first, last) in enumerate(self._spans if self.layout.copies_out == ALL else ()):
            begin, end = self._copied_out[shard], min(self._memory.finished(shard, number), last - first)
            if begin < end and (end == last - first or end - begin >= self._piece):
                self.layout.copy_out(first + begin, first + end)
                self._copied_out[shard] = end

    def copy_rest_out(self) -> None:
        """Copy out what is left of a sum that is done; of sums that are kept, their exponents."""
        left = [(first + done, last) for (first, last), done in zip(self._spans, self._copied_out, strict=True)]
        for first, last in left:
            self.layout.copy_out(first, last)

    def in_meanwhile(self, _: Collective) -> float:
        """Copy a piece in; return for how long not to call this again."""
        return BRIEF_S if self.copy_in() else math.inf


class ShardBlocks(Blocks):
    """The blocks of a shard: the data of several ranks, in the memory of their host."""

    def __init__(self, layout: HostLayout, memory: HostMemory, places: int, first: int, last: int) -> None:
        self._host, self._first = layout, first
        self.parts = layout.parts
        self.n_blocks = last - first
        self.starts = [0, self.n_blocks]
        self.published, self.begins = memory.published, layout.begins
        self.holders = np.zeros(self.n_blocks, np.uint64)
        self.exponents = np.zeros(self.n_blocks, np.uint8)
        for place in range(places):
            held = memory.nonzero(place)[first:last]
            self.holders |= held.astype(np.uint64) << np.uint64(place)
            np.maximum(self.exponents, memory.exponents(place)[first:last], out=self.exponents, where=held)
        self.nonzero = self.holders != 0

    def layout(self, *, keep_words: bool = False) -> Layout:
        """Return where the data lies, and where its sums belong."""
        return _ShardLayout(self._host, self._first, self.n_blocks)


class _ShardLayout(Layout):
    """The layout of a host, its blocks counted from the first of a shard."""

    def __init__(self, host: HostLayout, first: int, count: int) -> None:
        ends = np.array(host.starts[1:])
        rows = np.flatnonzero((ends > first) & (np.array(host.starts[:-1]) < first + count))
        self.parts = [host.parts[int(row)] for row in rows]
        self.table = host.table[rows]
        self.table["first_block"] -= first
        self.scales, self.units = host.scales[rows], host.units[rows]
        self._elements = host.elements
        self.sums_ends, self.words_per_block = [0], []
        self._sums = host.sums

    @property
    def elements(self) -> NDArray[np.uint32]:
        return self._elements

    def make_room(self, dense: bool) -> Words:
        """Return the host's memory for sums; blocks without a sum have old data."""
        return self._sums

    def finish(self, sums: Words, exponents: NDArray[np.uint8]) -> list[Any]:
        """Return nothing: each rank makes its results of the host's memory."""
        return []
