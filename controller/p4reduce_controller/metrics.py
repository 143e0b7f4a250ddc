"""The controller's metrics: of its registry, and the switch's counters."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

from p4reduce_contracts.jobs.answers import Count
from p4reduce_contracts.jobs.errors import SwitchAwayError
from p4reduce_controller.jobs.model import ACTIVE, FORMING, Job
from p4reduce_controller.jobs.registry import Registry
from p4reduce_runtime import metrics
from p4reduce_runtime.metrics import Sample

KEPT_S: Final = 1.0
"""How long what was read from the switch, or that nothing could be, is good for the next scrape."""

_JOB_COUNTERS: Final = (
    ("results", metrics.JOB_ROUNDS, None),
    ("contributions", metrics.JOB_CONTRIBUTION_FRAMES, metrics.JOB_CONTRIBUTION_BYTES),
    ("duplicates", metrics.JOB_DUPLICATE_FRAMES, metrics.JOB_DUPLICATE_BYTES),
    ("pendings", metrics.JOB_PENDING_FRAMES, None),
)

JobCounts = Mapping[str, Mapping[str, Count]]
DropCounts = Mapping[str, Count]


class CountingSwitch(Protocol):
    """The part of SwitchReconciler that reads the switch's counters."""

    async def all_counters(self, jobs: list[Job]) -> tuple[JobCounts, DropCounts]:
        """Counters by job name and counter, and drops by reason, soon. Raises SwitchAwayError."""


class ControllerMetrics:
    """Collects the samples of a scrape, on the event loop."""

    def __init__(
        self,
        registry: Registry,
        switch: CountingSwitch,
        refusals: Counter[tuple[str, str]],
        clock: Callable[[], float],
    ) -> None:
        """`refusals` counts refused calls by (call, reason); `clock` is the registry's."""
        self._registry = registry
        self._switch = switch
        self._refusals = refusals
        self._clock = clock
        self._reading = asyncio.Lock()
        self._read_at = float("-inf")
        self._counts: tuple[JobCounts, DropCounts] | None = None

    async def samples(self) -> list[Sample]:
        """Return all samples; without those of the switch when it does not answer soon."""
        counts = await self._counted()
        found = [*self._of_registry(), Sample(metrics.SWITCH_UP, counts is not None)]
        if counts is not None:
            found += self._of_switch(*counts)
        return found

    async def _counted(self) -> tuple[JobCounts, DropCounts] | None:
        async with self._reading:
            if self._clock() - self._read_at >= KEPT_S:
                jobs = self._registry.jobs()
                try:
                    counts, drops = await self._switch.all_counters(jobs)
                    self._counts = {_label(job): counts[job.name] for job in jobs}, drops
                except SwitchAwayError:
                    self._counts = None
                self._read_at = self._clock()
            return self._counts

    def _of_registry(self) -> Iterator[Sample]:
        jobs, now = self._registry.jobs(), self._clock()
        for state in (FORMING, ACTIVE):
            yield Sample(metrics.JOBS, sum(job.state == state for job in jobs), (state,))
        yield Sample(metrics.SLOTS, self._registry.slots.slots)
        yield Sample(metrics.FREE_SLOTS, self._registry.slots.free)
        yield Sample(metrics.JOINS, self._registry.joins)
        yield Sample(metrics.GRANTS, self._registry.grants_given)
        for cause, times in self._registry.resets.items():
            yield Sample(metrics.RESETS, times, (cause,))
        for (call, reason), times in self._refusals.items():
            yield Sample(metrics.REFUSED_CALLS, times, (call, reason))
        for job in jobs:
            silence_s = max((now - member.last_seen for member in job.members.values()), default=0.0)
            label = _label(job)
            yield Sample(metrics.JOB_RANKS, job.world_size, (label,))
            yield Sample(metrics.JOB_MEMBERS, len(job.members), (label,))
            yield Sample(metrics.JOB_SILENCE, max(0.0, silence_s), (label,))

    def _of_switch(self, jobs: JobCounts, drops: DropCounts) -> Iterator[Sample]:
        for label, counts in jobs.items():
            for counter, frames, octets in _JOB_COUNTERS:
                yield Sample(frames, counts[counter].packets, (label,))
                if octets is not None:
                    yield Sample(octets, counts[counter].bytes, (label,))
        for reason, count in drops.items():
            yield Sample(metrics.DROP_FRAMES, count.packets, (reason,))
            yield Sample(metrics.DROP_BYTES, count.bytes, (reason,))


def _label(job: Job) -> str:
    return metrics.job_label(job.name, job.id, job.private)
