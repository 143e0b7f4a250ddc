"""A collective's sums over the ranks of a host, and over the switch for those of all hosts.

Every rank writes its data to the host's memory. Once the ranks have compared their calls, all of it is there. The rank
that sends a shard encodes each block from the data of every rank of the host that holds it, with the exponent that all
hosts agree on, and adds the integers; so the sums have the bits that they have without shared memory.

A compressor's step (compressors/over_hosts.py) uses the same memory and the same connections.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from p4reduce import collectives
from p4reduce.codecs import Segment
from p4reduce.collectives import Contribution
from p4reduce.errors import CollectiveMismatchError, CollectiveTimeoutError, P4ReduceError, PeerRefusedError, Reason
from p4reduce.group import Group
from p4reduce.hosts.memory import HostMemory, Words
from p4reduce.hosts.plan import HostPlan, span_of
from p4reduce.protocol.blocks import UNTOUCHED, Blocks, Layout, Part, sum_blocks
from p4reduce.protocol.call import Call, Kind
from p4reduce.protocol.collective import Collective
from p4reduce.protocol.deadline import Obstacle, too_late
from p4reduce.protocol.refusal import reason_of
from p4reduce.protocol.state import FLOAT32, MOST_LANES
from p4reduce.stats import CollectiveStats
from p4reduce.switch_connection import SwitchConnection
from p4reduce_contracts.ranks import name_ranks
from p4reduce_runtime import kernels

T = TypeVar("T")
Lost = Callable[[], P4ReduceError | None]
"""Returns why a sum cannot be finished, if it cannot."""


@dataclass(frozen=True)
class HostCollective:
    """A collective that was summed over hosts."""

    call: Call
    results: list[Any]
    agreed_exponents: NDArray[np.uint8]
    sums: Words
    """[blocks, block_words]: the words as summed, big-endian, where they are kept; else empty."""
    slots: int

    @property
    def refusals(self) -> Mapping[int, Reason]:
        """None: a rank that refuses says so before the data is summed."""
        return {}

    def result(self) -> list[Any]:
        """Return the result of each part."""
        return self.results


class HostSums:
    """This rank's side of the sums over its host."""

    def __init__(
        self,
        plan: HostPlan,
        rank: int,
        memory: HostMemory,
        connection: SwitchConnection | None,
        *,
        keep_words: bool = False,
    ) -> None:
        """`connection`: over which this rank sends its shard, if it sends one. `keep_words`: collectives have sums."""
        self.plan, self._memory, self._connection = plan, memory, connection
        self._keep_words = keep_words
        self.host = plan.host_of(rank)
        ranks = plan.hosts[self.host]
        self.place, self._places = ranks.index(rank), len(ranks)
        self.shard = plan.shard_of(rank)
        """None: this rank only adds its data."""
        self._number = 0

    @property
    def most_elements(self) -> int:
        """How many float32 there is room for, of a rank and of results."""
        return self._memory.most_words

    def inputs(self, elements: int) -> NDArray[np.float32]:
        """Return the memory of the ranks' data as numbers, [ranks of this host, elements]; a rank writes at `place`."""
        memory = self._memory
        strides = (4 * memory.input_words, 4)
        return np.lib.stride_tricks.as_strided(memory.data.view(np.float32), (self._places, elements), strides)

    def results(self, elements: int) -> NDArray[np.float32]:
        """Return the memory of the results as numbers, [elements]; each rank writes those of its shard."""
        return self._memory.sums[:elements].view(np.float32)

    def layout(self, blocks: Blocks) -> HostLayout | None:
        """Return where the data of a collective lies; None where there is no room for it, equal on all ranks."""
        layout = HostLayout(blocks, self._memory, self.place, self.plan, keep_words=self._keep_words)
        return layout if layout.words <= self._memory.most_words else None

    def empty(self, size: int) -> NDArray[np.uint8] | None:
        """Return so many bytes of the host's memory for tensors of this rank; None without room. All ranks call it."""
        return None if self._keep_words else self._memory.allocate(self.place, size)

    def publish(self, blocks: Blocks, layout: HostLayout) -> None:
        """Write this rank's data where the others find it, if it is not there, before the ranks compare their calls."""
        memory, place, count = self._memory, self.place, blocks.n_blocks
        memory.exponents(place)[:count] = blocks.exponents
        memory.nonzero(place)[:count] = blocks.nonzero
        data, begin = memory.data[place * memory.input_words :], 0
        for part in () if layout.at else blocks.parts:
            values, words = part.values, _words_per_block(part)
            room = data[begin : begin + _capacity(part)]
            held = part.nonzero if part.step == 1 else np.ones(-(-len(values) // words), np.bool_)
            _copy_held(values, room[: len(values)], held, words)
            room[len(values) : -(-len(values) // words) * words] = 0
            begin += len(room)

    def sum(
        self, call: Call, blocks: Blocks, layout: HostLayout, timeout_s: float, lost: Lost, stats: CollectiveStats
    ) -> HostCollective:
        """Return the collective once it is done: all ranks have published their data. `layout`: of the blocks.

        Raises CollectiveError, and what `lost` returns.
        """

        def work(shard: int) -> int:
            return self._sum_shard(shard, call, layout, timeout_s, lost, stats)

        slots = self.share(work, timeout_s, lost, call)
        exponents = self._memory.exponents(self._places)[: blocks.n_blocks].copy()
        if not self._keep_words:
            return HostCollective(call, layout.results(exponents), exponents, np.zeros((0, 0), ">i4"), slots or 0)
        sums = layout.sums[: layout.sums_words].view(np.int32).reshape(blocks.n_blocks, -1).astype(">i4")
        sums[exponents == UNTOUCHED] = 0
        return HostCollective(call, blocks.decode(sums, exponents), exponents, sums, slots or 0)

    def set_failed(self) -> None:
        """Tell the other ranks of the host that this rank will not finish its part of the last sum, if it has not.

        They do not see what the caller writes to arrays of `empty` afterwards.
        """
        if self.shard is not None:
            self._memory.set_failed(self.shard, self._number)
        self._memory.detach()

    def share(self, work: Callable[[int], T], timeout_s: float, lost: Lost, what: object) -> T | None:
        """Have the ranks of this host each do the work of its shard; return this rank's result when all have.

        None for a rank without a shard. Raises what `work` and `lost` raise, and CollectiveError as `HostMemory.wait`;
        `set_failed` is for the caller.
        """
        deadline, found = time.monotonic() + timeout_s, None
        self._number += 1
        if self.shard is not None:
            found = work(self.shard)
            self._memory.set_done(self.shard, self._number)
        self._memory.wait(self.plan.shards, self._number, deadline, lost, what)
        return found

    def sum_segments(
        self,
        segments: Sequence[Segment],
        group: Group,
        name: str,
        agreement: str,
        timeout_s: float,
        lost: Lost,
        stats: CollectiveStats,
    ) -> list[Any]:
        """Return the sums of the segments of this shard's ranks, one of each host of `group`; see `Communicator`.

        Raises PeerRefusedError where one of these ranks refused.
        """
        contribution = collectives.all_reduce_segments(group, segments, dense=False, name=name, agreement=agreement)
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
    ) -> Collective:
        """Take part in a collective of this shard's ranks."""
        stats.collectives += 1
        call = contribution.call(self._number)
        return self._run(call, contribution.blocks, timeout_s, lost, stats, contribution.alike)

    def _run(
        self, call: Call, blocks: Blocks, timeout_s: float, lost: Lost, stats: CollectiveStats, alike: Hashable = None
    ) -> Collective:
        """Run a collective in the job of this shard, and add what it took to `stats`.

        Its errors name the ranks of the communicator's job.
        """
        connection, own = self._connection, CollectiveStats()  # by which this connection alone is judged
        assert connection is not None
        slots = connection.slots_of(alike)
        try:
            collective = connection.run(call, blocks, slots, timeout_s, own, lost, keep_words=False)
        except CollectiveTimeoutError as error:
            if not error.missing_ranks:
                raise
            ranks = [self._rank_of(host) for host in error.missing_ranks]  # those of the shard's job are hosts
            why = Obstacle(f"the switch still waits for {name_ranks(ranks)}", tuple(ranks))
            raise too_late(call, timeout_s, why) from None
        except CollectiveMismatchError as error:
            calls = {self._rank_of(host): text for host, text in error.calls.items()}
            raise CollectiveMismatchError(calls) from None
        finally:
            stats.add(own)
        connection.finished(collective, blocks, slots, alike)
        return collective

    def _rank_of(self, host: int) -> int:
        """Return which rank of a host sends this rank's shard."""
        assert self.shard is not None
        return self.plan.hosts[host][self.shard]

    def _sum_shard(
        self, shard: int, call: Call, layout: HostLayout, timeout_s: float, lost: Lost, stats: CollectiveStats
    ) -> int:
        """Sum a shard into the memory; return how many slots that took."""
        first, last = span_of(shard, self.plan.shards, layout.n_blocks)
        data = _ShardBlocks(layout, self._memory, self._places, first, last)
        slots = 0
        if self._connection is None:
            agreed = np.where(data.nonzero, data.exponents, np.uint8(UNTOUCHED))
            data.sum_in_memory()
        else:
            collective = self._run(call, data, timeout_s, lost, stats)
            agreed, slots = collective.agreed_exponents, collective.slots
        self._memory.exponents(self._places)[first:last] = agreed
        return slots


class HostLayout:
    """Where the data of the ranks of a host lies, and where the sums belong; equal on all of them."""

    def __init__(self, blocks: Blocks, memory: HostMemory, place: int, plan: HostPlan, *, keep_words: bool) -> None:
        own = blocks.layout(keep_words=keep_words)
        self.n_blocks, self.parts, self.starts = blocks.n_blocks, blocks.parts, blocks.starts
        self.scales, self.units = own.scales, own.units
        self.elements, self.sums = memory.elements, memory.sums
        self._own = own
        self.table = own.table.copy()
        one = blocks.parts[0] if len(blocks.parts) == 1 else None
        self.at = 0 if one is None else memory.offset_of(place, one.values)
        """Where in each rank's area the data is, not to be copied there; 0: it is copied to the beginning."""
        self.copies = 1
        """How many ranks' data the sums replace; 1: they are written to memory for sums, from which ranks copy."""
        if self.at and one is not None and one.in_place and own.table["decodes"][0] and not plan.uses_switch:
            self.copies, self.sums = len(memory.ranks), memory.data
        self.words_per_block = own.words_per_block
        begin, sums_begin = self.at, 0 if self.copies == 1 else self.at
        for row, part in enumerate(self.parts):
            numbers, entry = 1 if part.form == FLOAT32 else 2, self.table[row]
            # beyond data that was not copied there may be other data, not zeros
            length = own.table["end"][row] if self.at else numbers * _capacity(part)
            entry["begin"], entry["end"] = numbers * begin, numbers * begin + length
            entry["input_words"], entry["sums_begin"] = memory.input_words, sums_begin
            entry["kept_begin"], entry["kept_end"] = 0, len(part.nonzero)
            begin, sums_begin = begin + _capacity(part), sums_begin + len(part.nonzero) * self.words_per_block[row]
        self.sums_words = sums_begin
        self.words = max(0 if self.at else begin, 0 if self.copies > 1 else sums_begin)
        """Of the copied data, or of the sums where they do not replace it, whichever are more."""
        self.agreement = f"|{self.at}, {self.copies}" if self.at else ""
        """What of it must be equal on all ranks, and is not where only some give arrays of `empty`."""

    def results(self, exponents: NDArray[np.uint8]) -> list[Any]:
        """Return the results of the parts, copied from the sums; blocks that no rank held are zeros."""
        own, begin = self._own, 0
        touched = exponents != UNTOUCHED
        if self.copies > 1:
            found = self.parts[0].values
            if not touched.all():  # where there may be negative zeros
                found[np.repeat(~touched, self.words_per_block[0])[: len(found)]] = 0
            return own.finish(found, exponents)
        found = own.make_room(dense=bool(touched.all()))
        for row, end in enumerate(own.sums_ends):
            words, room = self.words_per_block[row], found[begin:end]
            first = int(own.table["kept_begin"][row])
            at = int(self.table["sums_begin"][row]) + first * words
            _copy_held(self.sums[at : at + len(room)], room, touched[self.starts[row] + first :], words)
            begin = end
        return own.finish(found, exponents)


class _ShardBlocks(Blocks):
    """The blocks of a shard: the data of several ranks, in the memory of their host."""

    def __init__(self, layout: HostLayout, memory: HostMemory, places: int, first: int, last: int) -> None:
        self._host, self._first = layout, first
        self.parts = layout.parts
        self.n_blocks = last - first
        self.starts = [0, self.n_blocks]
        self.holders = np.zeros(self.n_blocks, np.uint64)
        self.exponents = np.zeros(self.n_blocks, np.uint8)
        for place in range(places):
            held = memory.nonzero(place)[first:last]
            self.holders |= held.astype(np.uint64) << np.uint64(place)
            np.maximum(self.exponents, memory.exponents(place)[first:last], out=self.exponents, where=held)
        self.nonzero = self.holders != 0
        self._block_words = layout.parts[0].block_words if layout.parts else 0

    def layout(self, *, keep_words: bool = False) -> Layout:
        """Return where the data lies, and where its sums belong."""
        return _ShardLayout(self._host, self._first, self.n_blocks)

    def sum_in_memory(self) -> None:
        """Write the sums of the blocks, where these are of all ranks."""
        from p4reduce.protocol import blocks_kernels

        layout, size = self.layout(), self._block_words
        words, spare = np.zeros((2, size), np.uint32), np.empty((MOST_LANES + 1) * size, np.float32)
        blocks_kernels.sum_held_blocks(
            kernels.argument(layout.table),
            layout.elements,
            self.holders,
            layout.scales,
            layout.units,
            self.exponents,
            np.uint64(size),
            words,
            spare,
            self._host.sums,
            self._host.copies,
        )


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
        """Return the host's memory for sums; what is in blocks without a sum means nothing."""
        return self._sums

    def finish(self, sums: Words, exponents: NDArray[np.uint8]) -> list[Any]:
        """Return nothing: each rank makes its results of the host's memory."""
        return []


def _words_per_block(part: Part) -> int:
    """Return how many words in memory the numbers of a block take."""
    return part.block_words * max(1, part.lanes) // (1 if part.form == FLOAT32 else 2)


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
