"""The controller's metrics: of its registry, and the switches' counters."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from p4reduce_contracts.jobs.errors import SwitchAwayError
from p4reduce_controller.registry.job import ACTIVE, FORMING, Job
from p4reduce_controller.registry.registry import Registry
from p4reduce_controller.switches.reconciler import SwitchCounters, Switches
from p4reduce_runtime import metrics
from p4reduce_runtime.metrics import Sample

KEPT_S: Final = 1.0
"""Seconds for which what was read from a switch, or that reading failed, is good for further scrapes."""

_JOB_COUNTERS: Final = (
    ("results", metrics.JOB_ROUNDS, None),
    ("contributions", metrics.JOB_CONTRIBUTION_FRAMES, metrics.JOB_CONTRIBUTION_BYTES),
    ("duplicates", metrics.JOB_DUPLICATE_FRAMES, metrics.JOB_DUPLICATE_BYTES),
    ("pendings", metrics.JOB_PENDING_FRAMES, None),
    ("parent_answers", metrics.JOB_PARENT_FRAMES, metrics.JOB_PARENT_BYTES),
)


class ControllerMetrics:
    """Collects the samples of a scrape, on the event loop."""

    def __init__(
        self, registry: Registry, switches: Switches, refusals: Counter[tuple[str, str]], clock: Callable[[], float]
    ) -> None:
        """`refusals` counts refused calls by (call, reason); `clock` is the registry's."""
        self._registry = registry
        self._switches = switches
        self._refusals = refusals
        self._clock = clock
        self._reading = asyncio.Lock()
        self._read_at = float("-inf")
        self._samples: list[Sample] = []

    async def samples(self) -> list[Sample]:
        """Return all samples; without those of a switch that does not answer soon."""
        counted = await self._of_switches()
        return [*self._of_registry(), *counted]

    async def _of_switches(self) -> list[Sample]:
        async with self._reading:
            if self._clock() - self._read_at >= KEPT_S:
                jobs = self._registry.jobs()
                found = await self._switches.counters(jobs)
                self._samples = [sample for name in found for sample in _of_switch(name, found[name], jobs)]
                self._read_at = self._clock()
            return self._samples

    def _of_registry(self) -> Iterator[Sample]:
        jobs, now, tree = self._registry.jobs(), self._clock(), self._registry.tree
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
        for name in filter(tree.parent, tree.switches):
            yield Sample(metrics.LINK_UP, self._registry.links.problem(name) is None, (name,))
        for job in jobs:
            silence_s = max((now - member.last_seen for member in job.members.values()), default=0.0)
            label = _label(job)
            yield Sample(metrics.JOB_RANKS, job.world_size, (label,))
            yield Sample(metrics.JOB_MEMBERS, len(job.members), (label,))
            yield Sample(metrics.JOB_SWITCHES, len(job.tree), (label,))
            yield Sample(metrics.JOB_SILENCE, max(0.0, silence_s), (label,))


def _of_switch(name: str, counters: SwitchCounters | SwitchAwayError, jobs: Sequence[Job]) -> Iterator[Sample]:
    if isinstance(counters, SwitchAwayError):
        yield Sample(metrics.SWITCH_UP, False, (name,))
        return
    yield Sample(metrics.SWITCH_UP, True, (name,))
    for job in jobs:
        counts, labels = counters.jobs.get(job.name, {}), (_label(job), name)
        for counter, frames, octets in _JOB_COUNTERS:
            if counter in counts:
                yield Sample(frames, counts[counter].packets, labels)
                if octets is not None:
                    yield Sample(octets, counts[counter].bytes, labels)
    for reason, count in counters.drops.items():
        yield Sample(metrics.DROP_FRAMES, count.packets, (reason, name))
        yield Sample(metrics.DROP_BYTES, count.bytes, (reason, name))


def _label(job: Job) -> str:
    return metrics.job_label(job.name, job.id, job.private)
