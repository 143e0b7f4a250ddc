"""A collective's sums over the ranks of a host, and over the switch for those of all hosts.

Every rank writes its data to the host's memory. Once the ranks have compared their calls, all of them know which blocks
the others hold. The rank that sends a shard encodes each block from the data of every rank of the host that holds it,
with the exponent that all hosts agree on, and adds the integers; so the sums have the bits that they have without
shared memory. Data is copied in, and sums are copied out, piece by piece while frames are on the link.

A compressor's step (compressors/over_hosts.py) uses the same memory and the same connections.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from p4reduce.collectives import Contribution, Plans
from p4reduce.paths.hosts.copies import BRIEF_S, Copies, ShardBlocks
from p4reduce.paths.hosts.layout import HostCollective, HostLayout
from p4reduce.paths.hosts.memory import HostMemory
from p4reduce.paths.hosts.plan import HostPlan, span_of
from p4reduce.paths.hosts.shard import ShardPath
from p4reduce.paths.hosts.state import DATA_WORDS, WAITS
from p4reduce.paths.path import Lost
from p4reduce.paths.switch import SwitchPath
from p4reduce.protocol.blocks import Blocks
from p4reduce.protocol.call import Call
from p4reduce.protocol.collective import Collective
from p4reduce.stats import CollectiveStats

T = TypeVar("T")


class HostSums:
    """This rank's side of the sums over its host."""

    def __init__(
        self, plan: HostPlan, rank: int, memory: HostMemory, connection: SwitchPath | None, *, keep_words: bool = False
    ) -> None:
        """`connection`: over which this rank sends its shard, if it sends one. `keep_words`: collectives have sums."""
        self.plan, self.memory = plan, memory
        self._keep_words = keep_words
        self.host = plan.host_of(rank)
        ranks = plan.hosts[self.host]
        self.place, self._places = ranks.index(rank), len(ranks)
        self.shard = plan.shard_of(rank)
        """The number of this rank's shard; None: this rank only adds its data."""
        self.shard_path = None if connection is None or self.shard is None else ShardPath(plan, self.shard, connection)
        """The path between hosts; None where this rank sends no shard."""
        self.number = 0
        """The number of the last sum that this rank has begun."""
        self.plans = Plans()
        """The contributions of a compressor to sums of this rank's shard."""

    @property
    def most_elements(self) -> int:
        """Number of float32 for which there is room, of a rank and of results."""
        return DATA_WORDS

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

        It is kept with the blocks for the next collective with them.
        """
        kept = blocks.kept
        if isinstance(kept, HostLayout) and kept.memory is self.memory and kept.takes(blocks):
            return kept
        alone = not self.plan.uses_switch
        layout = HostLayout(blocks, self.memory, self.place, alone=alone, keeps_words=self._keep_words)
        if layout.words > DATA_WORDS:
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
        arguments = layout.begin(self.number + 1)
        if not self.plan.uses_switch:
            layout.run(*arguments)
            return None
        memory.set_published(place, 0)
        memory.set_finished(place, 0)
        memory.exponents(place)[:count] = blocks.exponents
        memory.nonzero(place)[:count] = blocks.nonzero
        memory.set_begin(place, layout.begins_at)
        copies = Copies(layout, memory, place, self.plan)
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
        if copies is None:
            self.number += 1
            deadline = time.monotonic() + timeout_s
            while layout.go_on() == WAITS:
                self.memory.look(self.plan.shards, self.number, deadline, lost, call)
            return layout.collective(lambda: call)
        layout.read_begins()

        def work(shard: int) -> None:
            self._sum_shard(shard, call, contribution, copies, timeout_s, lost, stats)

        self.share(work, timeout_s, lost, call, copies)
        copies.copy_rest_out()
        return layout.collective(lambda: call)

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
        data = ShardBlocks(layout, memory, self._places, first, last)
        summed = 0

        def meanwhile(collective: Collective) -> float:
            """Copy in, then out; return for how long not to call this again."""
            nonlocal summed
            if copies.copy_in():
                return BRIEF_S
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
        assert self.shard_path is not None
        finished = self.shard_path.run(replace(contribution, blocks=data), timeout_s, lost, stats, call.limit_s or 0.0)
        memory.exponents(self._places)[first:last] = finished.agreed_exponents
