"""All switches of the controller: what is asked of every one, or of those that have a job's entries."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from p4reduce_contracts.jobs.errors import SwitchAwayError
from p4reduce_controller.jobs.model import Job
from p4reduce_controller.jobs.reconciler import SwitchCounters, SwitchReconciler


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

    async def counters(self, jobs: Collection[Job]) -> dict[str, SwitchCounters | SwitchAwayError]:
        """Read the counters of each switch, by its name: or why they could not be read."""

        async def read(reconciler: SwitchReconciler) -> SwitchCounters | SwitchAwayError:
            try:
                return await reconciler.counters(jobs)
            except SwitchAwayError as error:
                return error

        found = await asyncio.gather(*map(read, self.by_name.values()))
        return dict(zip(self.by_name, found, strict=True))

    async def close(self) -> None:
        """End the connections; entries stay."""
        await asyncio.gather(*(reconciler.close() for reconciler in self.by_name.values()))
