"""For tests of the registry: a store in memory, and addresses of ranks."""

from __future__ import annotations

import itertools
from collections.abc import Collection

from p4reduce_contracts.jobs.errors import StoreError
from p4reduce_controller.registry.hello import Address
from p4reduce_controller.registry.job import Job
from p4reduce_controller.registry.slots import SlotRange
from p4reduce_controller.service import saved


def place(number: int) -> Address:
    return Address(ingress_port=number, mac=0x020000000000 + number, ip=0x0A000000 + number, udp_port=4000)


class MemoryJobStore:
    """Draws epochs 1, 2, ...; every job as text, as it was saved last. `failing`: the disk takes nothing."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.ended_texts: dict[str, str] = {}
        self.epochs = itertools.count(1)
        self.failing = False

    def draw_epoch(self, slots: SlotRange, in_use: Collection[int], switches: Collection[str] = ()) -> int:
        self._check()
        return next(self.epochs)

    def save(self, job: Job) -> None:
        self._check()
        self.texts[job.name] = saved.to_text(job)

    def end(self, job: Job) -> None:
        self._check()
        del self.texts[job.name]
        self.ended_texts[job.name] = saved.to_text(job.as_ended())

    def save_ended(self, job: Job) -> None:
        self._check()
        self.ended_texts[job.name] = saved.to_text(job.as_ended())

    def ended(self, name: str = "") -> list[tuple[float, Job]]:
        return [(1.0, saved.from_text(text)) for key, text in self.ended_texts.items() if name in ("", key)]

    def jobs(self) -> list[Job]:
        return [saved.from_text(text) for _, text in sorted(self.texts.items())]

    def _check(self) -> None:
        if self.failing:
            raise StoreError("the disk is full")
