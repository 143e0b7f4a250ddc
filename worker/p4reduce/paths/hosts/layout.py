"""Where the data of a host's ranks lies in its memory, and where the sums belong; what a rank copies.

    its data             its numbers          copied in          copied out
    lies elsewhere       float32 in 32 bits   of other shards    of other shards
    lies elsewhere       others               all                all
    is there already     float32 in 32 bits   nothing            of other shards
    is there already     others               nothing            all
    anywhere             summed in one shot   all                all

Of its own shard a rank sums float32 from its own tensor into its own result, where one host has all ranks; over a
switch it copies as with other numbers. Nothing is copied out where all ranks get the sums in place of their data, or
where the words are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs.arrays import address
from p4reduce.errors import Reason
from p4reduce.paths.hosts.memory import LOOK_S, HostMemory, Words, load_run
from p4reduce.paths.hosts.state import (
    ALL,
    AWAIT_SUMS,
    BUFFER_WORDS,
    CALL_WORDS,
    DATA_WORDS,
    IN_PLACE,
    NOTHING,
    ONE_SHOT_BLOCKS,
    ONE_SHOT_WORDS,
    OTHER_SHARDS,
    PUBLISH,
    YIELDS,
    Copied,
    Host,
    RunState,
)
from p4reduce.protocol.blocks import NO_WORDS, Blocks, Part
from p4reduce.protocol.call import Call
from p4reduce.protocol.state import FLOAT32, FORMATS, MOST_LANES, UNTOUCHED
from p4reduce_runtime.records import zeros

_LOOK_US = int(LOOK_S * 1e6)


_NO_EXPONENTS: Final = np.zeros(0, np.uint8)
_NO_SUMS: Final = np.zeros((0, 0), ">i4")


class HostCollective:
    """A collective that was summed over hosts, or whose outcome another rank has told."""

    def __init__(
        self,
        describe: Callable[[], Call],
        results: list[Any] | None = None,
        agreed_exponents: NDArray[np.uint8] = _NO_EXPONENTS,
        sums: Words = _NO_SUMS,
        refusals: Mapping[int, Reason] | None = None,
    ) -> None:
        """`describe` returns the call."""
        self._describe, self._results = describe, results or []
        self.agreed_exponents = agreed_exponents
        self.sums = sums
        """[blocks, block_words]: the words as summed, big-endian, where they are kept; else empty."""
        self.refusals: Mapping[int, Reason] = refusals or {}
        """No refusals where data was summed: a rank that refuses does so before."""

    @property
    def call(self) -> Call:
        return self._describe()

    def result(self) -> list[Any]:
        """Return the result of each part."""
        return self._results


class HostLayout:
    """This rank's collective, and later ones of the same blocks, in the memory of its host."""

    def __init__(self, blocks: Blocks, memory: HostMemory, place: int, *, alone: bool, keeps_words: bool) -> None:
        """`alone`: one host has all ranks. `keeps_words`: collectives have `sums`."""
        self.own = own = blocks.layout(keep_words=keeps_words)
        self.blocks, self.memory, self.place, self.keeps_words = blocks, memory, place, keeps_words
        self.n_blocks, self.parts, self.starts = blocks.n_blocks, blocks.parts, blocks.starts
        self.scales, self.units = own.scales, own.units
        self.elements, self.sums = memory.elements, memory.sums
        self.table = own.table.copy()
        self._one = one = blocks.parts[0] if len(blocks.parts) == 1 else None
        self.begins = np.zeros(0, np.int64)
        """[ranks of this host]: the word where each rank's data begins, once the ranks have compared their calls."""
        ranks, size = len(memory.ranks), self.parts[0].block_words if self.parts else 1
        self._copied = zeros(Copied, len(self.parts))
        begin = sums_begin = 0
        for row, part in enumerate(self.parts):
            numbers, entry, words = 1 << FORMATS[part.form].word_shift, self.table[row], own.words_per_block[row]
            kept_begin, kept_end, end_there = (int(entry[name]) for name in ("kept_begin", "kept_end", "end"))
            entry["begin"], entry["end"] = numbers * begin, numbers * (begin + _capacity(part))
            entry["input_words"], entry["sums_begin"] = memory.input_words, sums_begin
            entry["kept_begin"], entry["kept_end"] = 0, len(part.nonzero)
            places = (0, 0, _words_per_block(part), part.step, self.starts[row], len(part.nonzero), begin)
            kept = (sums_begin + kept_begin * words, words, kept_begin, kept_end)
            found_end = own.sums_ends[row]
            found = (found_end - (kept_end - kept_begin) * words, found_end)
            self._copied[row] = (*places, int(entry["end"]), end_there, *kept, *found)
            begin, sums_begin = begin + _capacity(part), sums_begin + len(part.nonzero) * words
        self.sums_words = sums_begin
        self.words = max(begin, sums_begin)
        """Number of words of the copied data, or of the sums, whichever is larger."""
        small = self.n_blocks <= ONE_SHOT_BLOCKS and self.words * ranks <= ONE_SHOT_WORDS
        self.one_shot = alone and small and not keeps_words
        self.at = None if one is None or self.one_shot else memory.array_at(one.values)
        """The word where this rank's data is in the memory already; None: it is copied to this rank's area."""
        self.begins_at = place * memory.input_words if self.at is None else self.at
        decodes = one is not None and bool(own.table["decodes"][0])
        in_place = alone and decodes and self.at is not None and one is not None and one.in_place
        self._state = zeros(RunState)
        state = self._state[0]
        state["place"], state["ranks"], state["blocks"] = place, ranks, self.n_blocks
        state["input_words"], state["sums_begin"] = memory.input_words, memory.sums_begin
        state["begin"] = self.begins_at | (IN_PLACE if in_place else 0)
        if self.one_shot:
            state["one_shot"], state["sums_begin"] = True, place * memory.input_words + DATA_WORDS + BUFFER_WORDS
        copied = OTHER_SHARDS if alone and decodes and _is_float32(one) and not self.one_shot else ALL
        self.copies_in = state["copies_in"] = copied if self.at is None else NOTHING
        self.copies_out = state["copies_out"] = NOTHING if keeps_words else copied
        self.agreed = np.empty(self.n_blocks, np.uint8)
        """[blocks]: the exponents of the last sums."""
        self._called = np.zeros(CALL_WORDS, np.uint64)
        self._compared: Sequence[int] = ()
        self._arguments = Host(
            run=self._state,
            control=memory.control,
            exponents=memory.all_exponents,
            nonzero=memory.all_nonzero,
            elements=memory.elements,
            data=memory.data,
            call=self._called,
            own_exponents=blocks.exponents,
            own_nonzero=blocks.nonzero,
            agreed=self.agreed,
            parts=self.table,
            own_parts=own.table,
            copied=self._copied,
            scales=self.scales,
            units=self.units,
            begins=np.zeros(ranks + 1, np.int64),
            holders=np.zeros(self.n_blocks if self.one_shot else -(-self.n_blocks // ranks), np.uint64),
            words=np.zeros((2, size), np.uint32),
            spare=np.empty((MOST_LANES + 1) * size, np.float32),
        )
        self._data = self._found = NO_WORDS
        self._kernels = load_run()
        self.run: Callable[..., int] = self._kernels.run
        """Goes on for LOOK_S; returns DONE, WAITS or COMPARE (state.py). After a signal it returns early."""

    def takes(self, blocks: Blocks) -> bool:
        """Return whether other data of the same blocks lies where this one's did."""
        one = len(blocks.parts) == 1 and self.memory.has_arrays
        elsewhere = not (one and self.memory.array_at(blocks.parts[0].values) is not None)
        return self.one_shot or (self.at is None and elsewhere)

    def begin(
        self, sum_number: int, call_number: int = 0, number: int = 0, compared: Sequence[int] = (0, 0, 0)
    ) -> tuple[Host, Words, Words, int]:
        """Begin with the data that the blocks have now, as sum `sum_number`; return the arguments of `run`.

        With `call_number`, calls are compared in the memory, as this one there: the number of the collective, and what
        else has to be equal. Else `run` returns when the data is there.
        """
        state, one = self._state[0], self._one
        state["sum_number"], state["call_number"] = sum_number, call_number
        state["next_step"], state["yields"] = PUBLISH, YIELDS
        self._called[0] = number
        if compared is not self._compared:
            self._compared = self._called[1:] = compared
        in_place = False
        if one is not None:
            self._data = self._found = one.values
            in_place = one.in_place and one.make_room is not None
        else:
            for row, part in enumerate(self.parts):
                entry = self._copied[row]
                entry["values"], entry["words"] = address(part.values), len(part.values)
        if not in_place:
            self._found = NO_WORDS if self.keeps_words else self.own.make_room(dense=True)
        return self._arguments, self._data, self._found, _LOOK_US

    def go_on(self, timeout_s: float = LOOK_S) -> int:
        """Do as `run`, with the arguments of the last one, for so long."""
        return self.run(self._arguments, self._data, self._found, int(timeout_s * 1e6))

    @property
    def has_summed(self) -> bool:
        """Whether this rank's shard is summed: it waits for the others', or is done."""
        return self.n_blocks > 0 and bool(self._state[0]["next_step"] >= AWAIT_SUMS)

    def read_begins(self) -> None:
        """Learn where the ranks have their data, once they have compared their calls; `run` does it by itself."""
        self.begins = self.memory.begins & ~IN_PLACE
        copied = self.begins.tolist() == [place * self.memory.input_words for place in range(len(self.memory.ranks))]
        self.table["end"] = self._copied["end" if copied else "end_there"]

    def copy_in(self, first: int, last: int) -> None:
        """Write this rank's data in a span of blocks to its area; `run` does it by itself."""
        self._kernels.copy_in(self._arguments, self._data, first, last)

    def copy_out(self, first: int, last: int) -> None:
        """Write the results of a span of blocks, zeros for those that no rank held; `run` does it by itself."""
        self._kernels.copy_out(self._arguments, self._found, first, last)

    def collective(self, describe: Callable[[], Call]) -> HostCollective:
        """Return the collective that is done; `describe` returns its call."""
        found = self._data if self.n_blocks and self._state[0]["in_place"] else self._found
        self._data = self._found = NO_WORDS
        if self.keeps_words:
            sums = self.sums[: self.sums_words].view(np.int32).reshape(self.n_blocks, -1).astype(">i4")
            sums[self.agreed == UNTOUCHED] = 0
            return HostCollective(describe, self.blocks.decode(sums, self.agreed), self.agreed, sums)
        if self._one is not None:
            return HostCollective(describe, [self._one.finish(self._one, found, self.agreed)], self.agreed)
        return HostCollective(describe, self.own.finish(found, self.agreed), self.agreed)


def _is_float32(part: Part | None) -> bool:
    """Return whether this is a part of float32 in 32 bits."""
    return part is not None and part.lanes == 1 and part.form == FLOAT32


def _words_per_block(part: Part) -> int:
    """Return how many words in memory the numbers of a block take."""
    return part.block_words * max(1, part.lanes) >> FORMATS[part.form].word_shift


def _capacity(part: Part) -> int:
    """Return the words that are kept for a part's data: where ranks have some of different length, for the longest."""
    return -(-len(part.nonzero) // part.step) * _words_per_block(part)
