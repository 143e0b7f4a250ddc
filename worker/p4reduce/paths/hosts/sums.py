"""A collective's sums over the ranks of a host, and over the switch for those of all hosts.

Every rank writes its data to the host's memory. Once the ranks have compared their calls, all of them know which blocks
the others hold. The rank that sends a shard encodes each block from the data of every rank of the host that holds it,
with the exponent that all hosts agree on, and adds the integers; so the sums have the bits that they have without
shared memory. Data is copied in, and sums are copied out, piece by piece while frames are on the link.

A compressor's step (compressors/over_hosts.py) uses the same memory and the same connections.
"""

from __future__ import annotations

import bisect
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from p4reduce import collectives
from p4reduce.codecs import Segment
from p4reduce.codecs.arrays import address
from p4reduce.collectives import Contribution
from p4reduce.errors import CollectiveMismatchError, CollectiveTimeoutError, PeerRefusedError, Reason
from p4reduce.paths.hosts.memory import LOOK_S, HostMemory, Words, load_run
from p4reduce.paths.hosts.plan import HostPlan, span_of
from p4reduce.paths.hosts.state import (
    ALL_BLOCKS,
    AWAIT_SUMS,
    CALL_WORDS,
    IN_PLACE,
    PUBLISH,
    WAITS,
    Copied,
    Host,
    RunState,
)
from p4reduce.paths.path import FinishedCollective, Lost
from p4reduce.paths.switch import SwitchPath
from p4reduce.protocol.blocks import NO_WORDS, Blocks, Layout, Part, sum_blocks
from p4reduce.protocol.call import Call, Kind
from p4reduce.protocol.collective import Collective
from p4reduce.protocol.deadline import Deadline, Obstacle, too_late
from p4reduce.protocol.refusal import reason_of
from p4reduce.protocol.state import FLOAT32, FORMATS, MOST_LANES, UNTOUCHED
from p4reduce.stats import CollectiveStats
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.ranks import name_ranks
from p4reduce_runtime.records import zeros

PIECE_WORDS: Final = 1 << 18
"""Words of frames that a rank copies at a time: an equal share of each shard."""
_LOOK_US: Final = int(LOOK_S * 1e6)
_BRIEF_S, _PAUSE_S = 300e-6, 10e-3
"""Seconds that a rank takes part in a collective before it copies the next piece in, and looks for sums to copy out."""

T = TypeVar("T")


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


class HostSums:
    """This rank's side of the sums over its host."""

    def __init__(
        self, plan: HostPlan, rank: int, memory: HostMemory, connection: SwitchPath | None, *, keep_words: bool = False
    ) -> None:
        """`connection`: over which this rank sends its shard, if it sends one. `keep_words`: collectives have sums."""
        self.plan, self.memory, self._connection = plan, memory, connection
        self._keep_words = keep_words
        self.host = plan.host_of(rank)
        ranks = plan.hosts[self.host]
        self.place, self._places = ranks.index(rank), len(ranks)
        self.shard = plan.shard_of(rank)
        """The number of this rank's shard; None: this rank only adds its data."""
        self.number = 0
        """The number of the last sum that this rank has begun."""

    @property
    def most_elements(self) -> int:
        """Number of float32 for which there is room, of a rank and of results."""
        return self.memory.most_words

    def inputs(self, elements: int) -> NDArray[np.float32]:
        """Return the memory of the ranks' data as numbers, [ranks of this host, elements]; a rank writes at `place`."""
        memory = self.memory
        strides = (4 * memory.input_words, 4)
        return np.lib.stride_tricks.as_strided(memory.data.view(np.float32), (self._places, elements), strides)

    def results(self, elements: int) -> NDArray[np.float32]:
        """Return the memory of the results as numbers, [elements]; each rank writes those of its shard."""
        return self.memory.sums[:elements].view(np.float32)

    def layout(self, blocks: Blocks) -> HostLayout | None:
        """Return where the data of a collective lies; None where there is no room for it, equal on all ranks.

        Where one host has all ranks, a `MemoryRun`, which is kept with the blocks for the next collective with them.
        """
        kept = blocks.kept
        if isinstance(kept, MemoryRun) and kept.memory is self.memory and kept.takes(blocks):
            return kept
        kind = HostLayout if self.plan.uses_switch else MemoryRun
        layout = kind(blocks, self.memory, self.place, keep_words=self._keep_words)
        if layout.words > self.memory.most_words:
            return None
        blocks.kept = layout
        return layout

    def empty(self, size: int) -> NDArray[np.uint8] | None:
        """Return so many bytes of the host's memory for tensors of this rank; None without room."""
        return None if self._keep_words else self.memory.allocate(self.place, size)

    def publish(self, blocks: Blocks, layout: HostLayout) -> Copies | None:
        """Write, before calls are compared, which blocks this rank holds, and a piece; return the further copies.

        Where one host has all ranks, write all, and return None.
        """
        memory, place, count = self.memory, self.place, blocks.n_blocks
        if isinstance(layout, MemoryRun):
            layout.run(*layout.begin(self.number + 1))
            return None
        memory.set_published(place, 0)
        memory.set_finished(place, 0)
        memory.exponents(place)[:count] = blocks.exponents
        memory.nonzero(place)[:count] = blocks.nonzero
        memory.set_begin(place, layout.begins_at)
        copies = Copies(layout, memory, place, self.plan, keep_words=self._keep_words)
        copies.copy_in()
        return copies

    def sum(  # noqa: PLR0917
        self,
        call: Call,
        contribution: Contribution,
        layout: HostLayout,
        copies: Copies | None,
        timeout_s: float,
        lost: Lost,
        stats: CollectiveStats,
    ) -> HostCollective:
        """Return the collective once it is done, after the ranks have compared their calls.

        `layout` and `copies`: of its blocks, as `publish` took and returned them. Raises CollectiveError, and what
        `lost` returns.
        """
        blocks = contribution.blocks
        if isinstance(layout, MemoryRun):
            self.number += 1
            deadline = time.monotonic() + timeout_s
            while layout.go_on() == WAITS:
                self.memory.look(self.plan.shards, self.number, deadline, lost, call)
            return layout.collective(lambda: call)
        assert copies is not None
        copies.settle()

        def work(shard: int) -> None:
            self._sum_shard(shard, call, contribution, copies, timeout_s, lost, stats)

        self.share(work, timeout_s, lost, call, copies)
        copies.copy_rest_out()
        exponents = self.memory.exponents(self._places)[: blocks.n_blocks].copy()
        if self._keep_words:
            return layout.with_words(lambda: call, exponents)
        assert copies.found is not None
        return HostCollective(lambda: call, layout.own.finish(copies.found, exponents), exponents)

    def set_failed(self) -> None:
        """Tell the other ranks of the host that this rank will not finish its part of the sum that has begun.

        They do not see what the caller writes to arrays of `empty` afterwards.
        """
        self.memory.set_failed(self.place, self.number)
        self.memory.detach()

    def share(
        self, work: Callable[[int], T], timeout_s: float, lost: Lost, what: object, copies: Copies | None = None
    ) -> T | None:
        """Have the ranks of this host each do the work of its shard; return this rank's result when all have.

        None for a rank without a shard. Raises what `work` and `lost` raise, and CollectiveError as `HostMemory.wait`;
        `set_failed` is for the caller. `copies`: to be made meanwhile.
        """
        deadline, found = time.monotonic() + timeout_s, None
        self.number += 1
        if self.shard is not None:
            found = work(self.shard)
        while copies is not None and copies.copy_in():
            pass
        self.memory.set_done(self.place, self.number)
        copy = None if copies is None or copies.pause_s == math.inf else copies.copy_out
        self.memory.wait(self.place, self.plan.shards, self.number, deadline, lost, what, copy)
        return found

    def sum_segments(
        self,
        segments: Sequence[Segment],
        group: Lease,
        name: str,
        agreement: str,
        timeout_s: float,
        lost: Lost,
        stats: CollectiveStats,
    ) -> list[Any]:
        """Return the sums of the segments of this shard's ranks, one of each host of `group`; see `Communicator`.

        Raises PeerRefusedError where one of these ranks refused.
        """
        contribution = collectives.all_reduce_segments(group, segments, False, name, agreement)
        blocks = contribution.blocks
        if self._connection is None:
            alone: list[Any] = contribution.finish(blocks.decode(*sum_blocks([blocks], group.block_words)))
            return alone
        collective = self._collective(contribution, timeout_s, lost, stats)
        if collective.refusals:
            reasons = {self._rank_of(host): reason for host, reason in collective.refusals.items()}
            raise PeerRefusedError(str(collective.call), reasons)
        sums: list[Any] = contribution.finish(collective.result())
        return sums

    def refuse(self, error: Exception, timeout_s: float, lost: Lost, stats: CollectiveStats) -> None:
        """Tell the ranks of this shard, in the place of `sum_segments`, that this rank cannot take part."""
        if self._connection is not None:
            self._collective(collectives.no_blocks(Kind.REFUSED, reason_of(error)), timeout_s, lost, stats)

    def _collective(
        self, contribution: Contribution, timeout_s: float, lost: Lost, stats: CollectiveStats
    ) -> FinishedCollective:
        """Take part in a collective of this shard's ranks, which counts as one."""
        stats.collectives += 1
        return self._run(replace(contribution, number=self.number), timeout_s, lost, stats)

    def _run(
        self, contribution: Contribution, timeout_s: float, lost: Lost, stats: CollectiveStats, limit_s: float = 0.0
    ) -> FinishedCollective:
        """Run a collective in the job of this shard, and add what it took to `stats`, but no collective.

        Its errors name the ranks of the communicator's job. `limit_s`: what the caller gave; default: `timeout_s`.
        """
        path, limit_s = self._connection, limit_s or timeout_s
        assert path is not None
        before = path.total.copy()
        try:
            finished = path.run(contribution, Deadline(path.clock() + timeout_s, limit_s), lost)
        except CollectiveTimeoutError as error:
            if not error.missing_ranks:
                raise
            ranks = [self._rank_of(host) for host in error.missing_ranks]  # those of the shard's job are hosts
            why = Obstacle(f"the switch still waits for {name_ranks(ranks)}", tuple(ranks))
            raise too_late(contribution.call(limit_s=limit_s), timeout_s, why) from None
        except CollectiveMismatchError as error:
            calls = {self._rank_of(host): text for host, text in error.calls.items()}
            raise CollectiveMismatchError(calls, error.layout) from None
        finally:
            spent = path.total - before
            spent.collectives = 0
            stats.add(spent)
        path.settle()
        return finished

    def _rank_of(self, host: int) -> int:
        """Return which rank of a host sends this rank's shard."""
        assert self.shard is not None
        return self.plan.hosts[host][self.shard]

    def _sum_shard(  # noqa: PLR0917
        self,
        shard: int,
        call: Call,
        contribution: Contribution,
        copies: Copies,
        timeout_s: float,
        lost: Lost,
        stats: CollectiveStats,
    ) -> None:
        """Sum a shard into the memory."""
        memory, layout, deadline = self.memory, copies.layout, time.monotonic() + timeout_s
        first, last = span_of(shard, self.plan.shards, layout.n_blocks)
        data = _ShardBlocks(layout, memory, self._places, first, last)
        summed = 0

        def meanwhile(collective: Collective) -> float:
            """Copy in, then out; return for how long not to call this again."""
            nonlocal summed
            if copies.copy_in():
                return _BRIEF_S
            if needed := collective.waits_for_blocks:
                memory.wait(self.place, self.plan.shards, self.number, deadline, lost, call, blocks=needed)
                return 0.0
            before, summed = summed, collective.finished_blocks
            if before < summed:
                agreed = memory.exponents(self._places)[first : first + summed]
                agreed[before:] = collective.agreed_exponents[before:summed]
                memory.set_finished(shard, summed)
            copies.copy_out(self.number)
            return copies.pause_s

        data.copy = meanwhile
        finished = self._run(replace(contribution, blocks=data), timeout_s, lost, stats, call.limit_s or 0.0)
        memory.exponents(self._places)[first:last] = finished.agreed_exponents


class HostLayout:
    """The words where the data of a host's ranks lies, and where the sums belong."""

    def __init__(self, blocks: Blocks, memory: HostMemory, place: int, *, keep_words: bool) -> None:
        self.own = own = blocks.layout(keep_words=keep_words)
        self.blocks, self.memory, self.place, self.keeps_words = blocks, memory, place, keep_words
        self.n_blocks, self.parts, self.starts = blocks.n_blocks, blocks.parts, blocks.starts
        self.scales, self.units = own.scales, own.units
        self.elements, self.sums = memory.elements, memory.sums
        self.table = own.table.copy()
        one = blocks.parts[0] if len(blocks.parts) == 1 else None
        self.at = None if one is None else memory.array_at(one.values)
        """The word where this rank's data is in the memory already; None: it is copied to the beginning of its area."""
        self.begins_at = place * memory.input_words if self.at is None else self.at
        self.begins = np.zeros(0, np.int64)
        """[ranks of this host]: the word where each rank's data begins, once the ranks have compared their calls."""
        self.words_per_block = own.words_per_block
        self._spans: list[tuple[int, int, int, int]] = []
        """The words where each part's data and its sums begin, and the span of blocks that its result has, by part."""
        begin = sums_begin = 0
        for row, part in enumerate(self.parts):
            numbers, entry = 1 << FORMATS[part.form].word_shift, self.table[row]
            entry["begin"], entry["end"] = numbers * begin, numbers * (begin + _capacity(part))
            entry["input_words"], entry["sums_begin"] = memory.input_words, sums_begin
            self._spans.append((begin, sums_begin, int(entry["kept_begin"]), int(entry["kept_end"])))
            entry["kept_begin"], entry["kept_end"] = 0, len(part.nonzero)
            begin, sums_begin = begin + _capacity(part), sums_begin + len(part.nonzero) * self.words_per_block[row]
        self.sums_words = sums_begin
        self.words = max(begin, sums_begin)
        """Number of words of the copied data, or of the sums, whichever is larger."""

    def settle(self) -> None:
        """Learn where the ranks have their data, once they have compared their calls."""
        self.begins = self.memory.begins & ~IN_PLACE
        if self.begins.tolist() != [place * self.memory.input_words for place in range(len(self.memory.ranks))]:
            self.table["end"] = self.own.table["end"]  # beyond what was not copied may be other data, not zeros

    def copy_in(self, data: Words, first: int, last: int) -> None:
        """Write this rank's data in a span of blocks to its area `data`."""
        for row in self._rows(first, last):
            part, start, begin = self.parts[row], self.starts[row], self._spans[row][0]
            words, step = _words_per_block(part), part.step
            low, high = max(first - start, 0), min(last - start, len(part.nonzero))
            if low < high:
                held = part.nonzero[low:high] if step == 1 else np.ones(-(-high // step) - low // step, np.bool_)
                values = part.values[low // step * words : -(-high // step) * words]
                room = data[begin + low // step * words :][: -(-len(values) // words) * words]
                _copy_held(values, room[: len(values)], held, words)
                room[len(values) :] = 0

    def copy_out(self, found: Words, exponents: NDArray[np.uint8], first: int, last: int) -> None:
        """Write the results of a span of blocks with these exponents to `found`, zeros for those that no rank held."""
        for row in self._rows(first, last):
            words, start, (_, at, kept_begin, kept_end) = self.words_per_block[row], self.starts[row], self._spans[row]
            low, high = max(first - start, kept_begin), min(last - start, kept_end)
            if low < high:
                room = found[self.own.sums_ends[row] - (kept_end - low) * words :][: (high - low) * words]
                touched = exponents[low + start - first : high + start - first] != UNTOUCHED
                _copy_held(self.sums[at + low * words :][: len(room)], room, touched, words)
                if not touched.all():
                    room[np.repeat(~touched, words)[: len(room)]] = 0

    def _rows(self, first: int, last: int) -> range:
        """Return which parts a span of blocks meets."""
        return range(bisect.bisect_right(self.starts, first) - 1, bisect.bisect_left(self.starts, last))

    def with_words(self, describe: Callable[[], Call], exponents: NDArray[np.uint8]) -> HostCollective:
        """Return the collective that is done, of words that were kept."""
        sums = self.sums[: self.sums_words].view(np.int32).reshape(self.n_blocks, -1).astype(">i4")
        sums[exponents == UNTOUCHED] = 0
        return HostCollective(describe, self.blocks.decode(sums, exponents), exponents, sums)


class MemoryRun(HostLayout):
    """This rank's collective, and later ones of the same blocks, in the memory of a host that has all ranks."""

    def __init__(self, blocks: Blocks, memory: HostMemory, place: int, *, keep_words: bool) -> None:
        super().__init__(blocks, memory, place, keep_words=keep_words)
        one, ranks = blocks.parts[0] if len(blocks.parts) == 1 else None, len(memory.ranks)
        decodes = one is not None and bool(self.own.table["decodes"][0])
        in_place = decodes and self.at is not None and one is not None and one.in_place
        self._state = zeros(RunState)
        state = self._state[0]
        state["place"], state["ranks"], state["blocks"] = place, ranks, self.n_blocks
        state["input_words"], state["sums_begin"] = memory.input_words, memory.sums_begin
        state["begin"], state["is_there"] = self.begins_at | (IN_PLACE if in_place else 0), self.at is not None
        state["sums_own"], state["keeps_words"] = decodes and _is_float32(one), keep_words
        self._copied = zeros(Copied, len(self.parts))
        for row, part in enumerate(self.parts):
            begin, sums_begin, kept_begin, kept_end = self._spans[row]
            words, found_end = self.words_per_block[row], self.own.sums_ends[row]
            places = (0, 0, _words_per_block(part), part.step, self.starts[row], len(part.nonzero), begin)
            ends = int(self.table["end"][row]), int(self.own.table["end"][row])
            kept = (sums_begin + kept_begin * words, words, kept_begin, kept_end)
            self._copied[row] = places + ends + kept + (found_end - (kept_end - kept_begin) * words, found_end)
        size = self.parts[0].block_words if self.parts else 1
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
            own_parts=self.own.table,
            copied=self._copied,
            scales=self.scales,
            units=self.units,
            begins=np.zeros(ranks + 1, np.int64),
            holders=np.zeros(-(-self.n_blocks // ranks), np.uint64),
            words=np.zeros((2, size), np.uint32),
            spare=np.empty((MOST_LANES + 1) * size, np.float32),
        )
        self._data = self._found = NO_WORDS
        self._is_one = one is not None
        self.run: Callable[..., int] = load_run().run
        """Goes on for LOOK_S; returns DONE, WAITS or COMPARE (state.py). After a signal it returns early."""

    def takes(self, blocks: Blocks) -> bool:
        """Return whether other data of the same blocks lies where this one's did."""
        one = len(blocks.parts) == 1 and self.memory.has_arrays
        return self.at is None and not (one and self.memory.array_at(blocks.parts[0].values) is not None)

    def begin(
        self, sum_number: int, call_number: int = 0, number: int = 0, compared: Sequence[int] = (0, 0, 0)
    ) -> tuple[Host, Words, Words, int]:
        """Begin with the data that the blocks have now, as sum `sum_number`; return the arguments of `run`.

        With `call_number`, calls are compared in the memory, as this one there: the number of the collective, and what
        else has to be equal. Else it returns when the data is there.
        """
        state, parts = self._state[0], self.parts
        state["sum_number"], state["call_number"], state["next_step"] = sum_number, call_number, PUBLISH
        self._called[0] = number
        if compared is not self._compared:
            self._compared = self._called[1:] = compared
        if self._is_one:
            part = parts[0]
            self._data = self._found = part.values
            in_place = part.in_place and part.make_room is not None
        else:
            in_place = False
            for row, part in enumerate(parts):
                entry = self._copied[row]
                entry["values"], entry["words"] = address(part.values), len(part.values)
        if not in_place:
            self._found = NO_WORDS if self.keeps_words else self.own.make_room(dense=True)
        return self._arguments, self._data, self._found, _LOOK_US

    def go_on(self) -> int:
        """Do as `run`, with the arguments of the last one."""
        return self.run(self._arguments, self._data, self._found, _LOOK_US)

    @property
    def has_summed(self) -> bool:
        """Whether this rank's shard is summed: it waits for the others', or is done."""
        return self.n_blocks > 0 and bool(self._state[0]["next_step"] >= AWAIT_SUMS)

    def collective(self, describe: Callable[[], Call]) -> HostCollective:
        """Return the collective that is done; `describe` returns its call."""
        found = self._data if self.n_blocks and self._state[0]["in_place"] else self._found
        self._data = self._found = NO_WORDS
        if self.keeps_words:
            return self.with_words(describe, self.agreed)
        if self._is_one:
            part = self.parts[0]
            return HostCollective(describe, [part.finish(part, found, self.agreed)], self.agreed)
        return HostCollective(describe, self.own.finish(found, self.agreed), self.agreed)


class Copies:
    """The copies that a rank makes in one collective."""

    def __init__(self, layout: HostLayout, memory: HostMemory, place: int, plan: HostPlan, *, keep_words: bool) -> None:
        """`keep_words`: nothing is copied out."""
        self.layout, self._memory, self._place = layout, memory, place
        self._spans = [span_of(shard, plan.shards, layout.n_blocks) for shard in range(plan.shards)]
        """The blocks of each shard."""
        words = layout.parts[0].block_words if layout.parts else 1
        self._piece = max(1, PIECE_WORDS // (words * plan.shards))
        """Blocks of each shard that are copied at a time."""
        self._copied_in, self._copied_out = 0, [0] * plan.shards
        self._copies_out = not keep_words
        self._end = max(last - first for first, last in self._spans)
        self._piece_in = self._piece if layout.at is None else max(1, self._end)
        """Blocks of each shard that are copied in at a time; all where nothing is copied."""
        self.pause_s = _PAUSE_S if self._copies_out and layout.n_blocks * words >= 4 * PIECE_WORDS else math.inf
        """Seconds between two looks for sums to copy out; copying the few at the end takes less time than looking."""
        self.found: Words | None = None
        """The results, as far as they are copied out."""

    def settle(self) -> None:
        """Learn how all ranks take part, once they have compared their calls."""
        self.layout.settle()

    def copy_in(self) -> bool:
        """Copy the next piece in, and tell the other ranks; return whether there was one."""
        begin = self._copied_in
        if begin >= self._end:
            return False
        self._copied_in = end = begin + self._piece_in
        data = self._memory.data[self._place * self._memory.input_words :]
        for first, last in self._spans if self.layout.at is None else ():
            self.layout.copy_in(data, min(first + begin, last), min(first + end, last))
        self._memory.set_published(self._place, end if end < self._end else ALL_BLOCKS)
        return True

    def copy_out(self, number: int) -> None:
        """Copy out what is finished of sum `number`, not less than a piece but at the end."""
        for shard, (first, last) in enumerate(self._spans if self._copies_out else ()):
            begin, end = self._copied_out[shard], min(self._memory.finished(shard, number), last - first)
            if begin < end and (end == last - first or end - begin >= self._piece):
                self._copy_out(first + begin, first + end)
                self._copied_out[shard] = end

    def copy_rest_out(self) -> None:
        """Copy out what is left of a sum that is done."""
        if self._copies_out:
            left = [(first + done, last) for (first, last), done in zip(self._spans, self._copied_out, strict=True)]
            for first, last in _joined(left):
                self._copy_out(first, last)

    def _copy_out(self, first: int, last: int) -> None:
        exponents = self._memory.exponents(len(self._memory.ranks))[first:last]
        self.layout.copy_out(self._room(), exponents, first, last)

    def _room(self) -> Words:
        """Return the memory of the results."""
        if self.found is None:
            self.found = self.layout.own.make_room(dense=True)
        return self.found

    def in_meanwhile(self, _: Collective) -> float:
        """Copy a piece in; return for how long not to call this again."""
        return _BRIEF_S if self.copy_in() else math.inf


class _ShardBlocks(Blocks):
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
        self.elements = host.elements
        self.sums_ends, self.words_per_block = [0], []
        self._sums = host.sums

    def make_room(self, dense: bool) -> Words:
        """Return the host's memory for sums; blocks without a sum have old data."""
        return self._sums

    def finish(self, sums: Words, exponents: NDArray[np.uint8]) -> list[Any]:
        """Return nothing: each rank makes its results of the host's memory."""
        return []


def _joined(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans in ascending order with neighbours as one, without empty ones; at least one."""
    found = [spans[0]]
    for first, last in spans[1:]:
        if first == found[-1][1]:
            found[-1] = found[-1][0], last
        elif first < last:
            found.append((first, last))
    return found


def _is_float32(part: Part | None) -> bool:
    """Return whether this is a part of float32 in 32 bits."""
    return part is not None and part.lanes == 1 and part.form == FLOAT32


def _words_per_block(part: Part) -> int:
    """Return how many words in memory the numbers of a block take."""
    return part.block_words * max(1, part.lanes) >> FORMATS[part.form].word_shift


def _capacity(part: Part) -> int:
    """Return the words that are kept for a part's data: where ranks have some of different length, for the longest."""
    return -(-len(part.nonzero) // part.step) * _words_per_block(part)


def _copy_held(source: Words, to: Words, held: NDArray[np.bool_], words: int) -> None:
    """Copy the blocks that are `held`, each of so many words, the last perhaps of fewer."""
    whole = len(source) // words
    cut = whole * words
    if held[:whole].all():
        to[:cut] = source[:cut]
    else:
        to[:cut].reshape(whole, words)[held[:whole]] = source[:cut].reshape(whole, words)[held[:whole]]
    if cut < len(source) and held[whole]:
        to[cut:] = source[cut:]
