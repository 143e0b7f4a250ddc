"""The retransmission timers of a collective's slots, the earliest first."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from p4reduce.protocol.slot import SlotState


class Timers:
    """A heap of (time, slot); an entry whose slot has moved on since is skipped when it surfaces."""

    def __init__(self, slots: list[SlotState]) -> None:
        self._slots = slots
        self._heap: list[tuple[float, int]] = []

    def arm(self, slot: SlotState, now: float) -> None:
        """Let the slot expire `slot.timeout_s` from now; replaces its earlier timer."""
        slot.expires = now + slot.timeout_s
        heappush(self._heap, (slot.expires, slot.index))

    @property
    def earliest(self) -> float | None:
        heap, slots = self._heap, self._slots
        while heap:
            expires, index = heap[0]
            if slots[index].expires == expires and not slots[index].done:
                return expires
            heappop(heap)
        return None

    def expired(self, now: float) -> Iterator[SlotState]:
        """The slots whose time has come; each has to be armed again."""
        while (earliest := self.earliest) is not None and earliest <= now:
            yield self._slots[heappop(self._heap)[1]]
