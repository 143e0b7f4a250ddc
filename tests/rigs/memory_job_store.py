"""For tests of the registry: store that are kept in memory."""

from __future__ import annotations

import itertools
from collections.abc import Collection

from p4reduce_contracts.jobs.errors import StoreError
from p4reduce_controller.registry.job import Job
from p4reduce_controller.registry.slots import SlotRange
from p4reduce_controller.service import saved


class MemoryJobStore:
    """Draws epochs 1, 2, ...; every job as text, as it was saved last. `failing`: the disk takes nothing."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.epochs = itertools.count(1)
        self.failing = False

    def draw_epoch(self, slots: SlotRange, in_use: Collection[int], switches: Collection[str] = ()) -> int:
        self._check()
        return next(self.epochs)

    def save(self, job: Job) -> None:
        self._check()
        self.texts[job.name] = saved.to_text(job)

    def delete(self, name: str) -> None:
        self._check()
        del self.texts[name]

    def jobs(self) -> list[Job]:
        return [saved.from_text(text) for _, text in sorted(self.texts.items())]

    def _check(self) -> None:
        if self.failing:
            raise StoreError("the disk is full")
