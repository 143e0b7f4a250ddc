"""Which job holds which slots of the switch: one run of neighbouring slots a job, given out first-fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from p4reduce_contracts.jobs.errors import InvalidRequestError, SwitchFullError
from p4reduce_contracts.wire.numbers import MAX_SLOTS

DEFAULT_SLOTS = 128
MOST_BY_DEFAULT = 256
"""Slots that carry 11.6 Gbit/s at a round trip of 0.2 ms, in frames of 1 KB: what a core of a worker can."""


@dataclass(frozen=True, order=True)
class SlotRange:
    """Slots base .. base + count - 1."""

    base: Annotated[int, Meta(ge=0, le=MAX_SLOTS)]
    count: Annotated[int, Meta(ge=1, le=MAX_SLOTS)]

    @property
    def end(self) -> int:
        """The first slot after the range."""
        return self.base + self.count


class SlotAllocator:
    """The switch's slots. Ranges that are held never overlap."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._held: dict[str, SlotRange] = {}

    @property
    def free(self) -> int:
        """Number of free slots, in all pieces together."""
        return self.slots - sum(held.count for held in self._held.values())

    def take(self, owner: str, count: int | None, most: int = DEFAULT_SLOTS) -> SlotRange:
        """Give `owner` the first free run of `count` slots.

        None takes DEFAULT_SLOTS, up to `most` where that is a quarter of the longest run, and less where that is less.
        Raises SwitchFullError with the numbers, or InvalidRequestError for a count that this switch can never give.
        """
        if count is not None and not 1 <= count <= self.slots:
            raise InvalidRequestError(f"a job can have 1 to {self.slots} slots on this switch, not {count}")
        gaps = self._gaps()
        longest = max((gap.count for gap in gaps), default=0)
        if count is None:
            count = min(max(DEFAULT_SLOTS, min(most, longest // 4)), longest) or 1
        for gap in gaps:
            if gap.count >= count:
                self._held[owner] = SlotRange(gap.base, count)
                return self._held[owner]
        raise SwitchFullError(self._shortage(count, longest))

    def hold(self, owner: str, slots: SlotRange) -> None:
        """Give `owner` these very slots.

        Raises SwitchFullError if this switch lacks them or some of them are held.
        """
        if not any(gap.base <= slots.base and slots.end <= gap.end for gap in self._gaps()):
            raise SwitchFullError(f"slots {slots.base} to {slots.end - 1} are not all free on this switch")
        self._held[owner] = slots

    def release(self, owner: str) -> None:
        """Take the slots of `owner` back."""
        del self._held[owner]

    def _gaps(self) -> list[SlotRange]:
        gaps = []
        start = 0
        for held in sorted(self._held.values()):
            if held.base > start:
                gaps.append(SlotRange(start, held.base - start))
            start = held.end
        if start < self.slots:
            gaps.append(SlotRange(start, self.slots - start))
        return gaps

    def _shortage(self, count: int, longest: int) -> str:
        holders = ", ".join(f"{owner} {held.count}" for owner, held in sorted(self._held.items()))
        if self.free >= count:
            free = f"{self.free} are free, but at most {longest} in one piece"
        else:
            free = f"{self.free} are free"
        return (
            f"no room for {count} slot{'' if count == 1 else 's'}: of the switch's {self.slots} slots {free} "
            f"({holders}); ask for fewer or remove a job"
        )
