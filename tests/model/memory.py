"""Ranks that are all on one host: every order of the steps of their collectives in its memory, on the compiled code.

A step of a rank goes from one wait for the others to the next. A way that is not the first from a state is run again
from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from p4reduce import collectives
from p4reduce.collectives import Contribution, Plans
from p4reduce.paths.hosts import layout
from p4reduce.paths.hosts.layout import HostLayout
from p4reduce.paths.hosts.memory import HostMemory, MemoryFile
from p4reduce.paths.hosts.plan import HostPlan
from p4reduce.paths.hosts.state import AWAIT_SUMS, CALL, CALLED_AT, CALLS_AT, COMPARE, DONE, DONE_AT
from p4reduce.paths.hosts.sums import HostSums
from p4reduce.protocol.call import compare_calls
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire.calls import Kind
from p4reduce_contracts.wire.geometry import SMALL

RANKS: Final = 3
STEPS: Final = (9, 5, 5, 9, 9, 0, -1, -2, 5)
"""Blocks of each collective: none in a barrier; -1: a sum that rank 1 refuses; -2: one that all refuse alike."""
MOST_WORDS: Final = RANKS * 5 * SMALL.block_words
"""Words, times ranks, that are summed in one shot."""


class MemoryRank:
    """One rank, which calls one collective after the other."""

    def __init__(self, rank: int, memory: HostMemory) -> None:
        self.rank, self._memory, self._plans = rank, memory, Plans()
        self._lease = Lease(0, "job", 0, rank, RANKS, 1, SMALL.columns, SMALL.block_words)
        self._sums = HostSums(HostPlan((tuple(range(RANKS)),)), rank, memory, None)
        self._contribution: Contribution | None = None
        self._run: HostLayout | None = None
        self.found: list[object] = []
        """What came of each collective."""

    def can_go(self) -> bool:
        """Return whether the next step would not wait."""
        if len(self.found) == len(STEPS):
            return False
        at = 0 if self._run is None else int(self._run._state[0]["next_step"])
        if at not in {CALL, AWAIT_SUMS}:
            return True
        assert self._run is not None
        first, least = (CALLED_AT, "call_number") if at == CALL else (DONE_AT, "sum_number")
        return bool((self._memory.control[first : first + RANKS] >= self._run._state[0][least]).all())

    def go(self) -> None:
        number = len(self.found)
        if self._run is None:
            self._contribution = self._prepared(number)
            run = self._sums.layout(self._contribution.blocks)
            assert isinstance(run, HostLayout)
            self._run, self._contribution.number = run, number
            *arguments, _ = run.begin(self._sum_number(), number + 1, number, self._contribution.compared)
            event = run.run(*arguments, 0)
        else:
            event = self._run.run(self._run._arguments, self._run._data, self._run._found, 0)
        assert self._contribution is not None
        refused = event == DONE and self._contribution.kind is Kind.REFUSED
        if event == DONE and not refused:
            self._end(self._run)
        elif event == COMPARE or refused:
            refusals, _ = compare_calls(self._memory.calls(number + 1))
            self.found.append(sorted(refusals))
            self._run = None

    def _sum_number(self) -> int:
        return self._sums.number + 1

    def _end(self, run: HostLayout) -> None:
        assert self._contribution is not None
        self._sums.number += run.has_summed
        results = run.collective(self._contribution.call).result()
        self.found.append(results[0].tobytes() if results else None)
        if self._contribution.key is not None:
            for segment in self._contribution.segments:
                segment.release()
            self._plans.kept[self._contribution.key] = self._contribution
        self._run = None

    def _prepared(self, number: int) -> Contribution:
        if STEPS[number] == -2 or STEPS[number] == -1 and self.rank == 1:
            return collectives.no_blocks(Kind.REFUSED, 1)
        if not STEPS[number]:
            return collectives.no_blocks(Kind.BARRIER)
        return collectives.all_reduce(self._plans, self._lease, tensor(self.rank, number), None)

    def state(self) -> tuple[object, ...]:
        return str(self.found), b"" if self._run is None else self._run._state.tobytes()


class TakesSumsAtOnce(MemoryRank):
    """A mutant: a rank does not wait for the sums of the others' shards."""

    def go(self) -> None:
        super().go()
        if self._run is not None and self._run._state[0]["next_step"] == AWAIT_SUMS:
            self._end(self._run)


class BeginsBeforeOthersHaveSummed(MemoryRank):
    """A mutant: a rank that has summed its shard writes over its data."""

    def go(self) -> None:
        super().go()
        if self._run is not None and self._run._state[0]["next_step"] == AWAIT_SUMS:
            self._memory.data[self.rank * self._memory.input_words :][:4] = 99


class WritesToOneBuffer(MemoryRank):
    """A mutant: a rank writes the data of each sum in one shot over that of the last one."""

    def _sum_number(self) -> int:
        return 2 * super()._sum_number()


MEMORY_MUTANTS: Final = (TakesSumsAtOnce, BeginsBeforeOthersHaveSummed, WritesToOneBuffer)


def tensor(rank: int, number: int) -> NDArray[np.int32]:
    """Return what a rank gives: the sum's digits say who is in it; rank 2 holds no first block, none a second."""
    blocks = np.full((abs(STEPS[number]), SMALL.block_words), (1 + number) * 16**rank, np.int32)
    blocks[0] *= rank != 2
    blocks[1:2] = 0
    return blocks.reshape(-1)


def _expected(number: int) -> object:
    if STEPS[number] < 0:
        return [1] if STEPS[number] == -1 else [*range(RANKS)]
    return sum(tensor(rank, number) for rank in range(RANKS)).tobytes() if STEPS[number] else None  # type: ignore[union-attr]


@mock.patch.object(layout, "ONE_SHOT_WORDS", MOST_WORDS)
def explore_memory(make: Callable[[int, HostMemory], MemoryRank] = MemoryRank) -> tuple[int, str, Sequence[int]]:
    """Search all orders; return how many states there are, what is broken, and the way to it: ranks in their order."""
    seen: set[int] = set()
    ways: list[list[int]] = [[]]
    while ways:
        way = ways.pop()
        file = MemoryFile.create(RANKS)
        memories = [HostMemory(file, range(RANKS), range(RANKS)) for _ in range(RANKS)]
        ranks = [make(rank, memory) for rank, memory in enumerate(memories)]
        for rank in way:
            ranks[rank].go()
        while True:
            control = memories[0].control[DONE_AT : CALLS_AT + 8 * RANKS].tobytes()
            state = hash((*(rank.state() for rank in ranks), control))
            if state in seen:
                break
            seen.add(state)
            ready = [rank.rank for rank in ranks if rank.can_go()]
            if not ready:
                expected = [_expected(number) for number in range(len(STEPS))]
                wrong = [rank.rank for rank in ranks if rank.found != expected]
                if wrong:
                    return len(seen), f"ranks {wrong} got a wrong sum, or none", way
                break
            ways += [[*way, rank] for rank in ready[1:]]
            way = [*way, ready[0]]
            ranks[ready[0]].go()
        for memory in memories:
            memory.close()
    return len(seen), "", []
