"""All switches of the controller: what is asked of every one, or of those that have a job's entries."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from p4reduce_contracts.jobs.answers import Count
from p4reduce_controller.jobs.model import Job
from p4reduce_controller.jobs.reconciler import SwitchReconciler

Counters = dict[str, Count]
"""Counts by the name of a job's counter, or by drop reason."""


class Switches:
    """The reconcilers by the names of their switches."""

    def __init__(self, reconcilers: Iterable[SwitchReconciler]) -> None:
        self.by_name = {reconciler.name: reconciler for reconciler in reconcilers}

    def unavailable_reason(self) -> str:
        """Return why switches cannot be used now, or ""."""
        reasons = (reconciler.unavailable_reason() for reconciler in self.by_name.values())
        return "; ".join(filter(None, reasons))

    async def wait_synced(self) -> None:
        """Return when every switch holds the registry's present grants, is not connected, or takes too long."""
        await asyncio.gather(*(reconciler.wait_synced() for reconciler in self.by_name.values()))

    async def job_counters(self, job: Job) -> dict[str, Counters]:
        """Return a job's counters since it was made or the switch was lost, by switch where it has had entries.

        Raises SwitchAwayError.
        """
        names = [name for name in self.by_name if name in job.counted_from]
        counters = await asyncio.gather(*(self.by_name[name].job_counters(job) for name in names))
        return dict(zip(names, counters, strict=True))

    async def drop_counters(self) -> dict[str, Counters]:
        """Return drops by switch and reason. Raises SwitchAwayError."""
        counters = await asyncio.gather(*(reconciler.drop_counters() for reconciler in self.by_name.values()))
        return dict(zip(self.by_name, counters, strict=True))

    async def close(self) -> None:
        """End the connections; entries stay."""
        await asyncio.gather(*(reconciler.close() for reconciler in self.by_name.values()))
