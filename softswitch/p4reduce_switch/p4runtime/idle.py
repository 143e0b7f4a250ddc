"""Idle timeouts: tells the primary controller of table entries that no frame has hit for as long as they allow.

An entry's timer runs from its last hit, its insertion or the last notification, whichever came last. It is looked at
when it may be due: nothing scans the tables.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from p4reduce_contracts.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_switch.p4runtime.bound_table import BoundTable, Identity
from p4reduce_switch.program import Entry, EntryMissing

LEAST_US = 10_000
"""Timeouts below this are kept as they were given, but the switch takes so long at least."""
ENTRIES_IN_MESSAGE = 512
SPARE = 64
"""Timers no longer kept that may wait for their time, besides as many as are kept."""


@dataclass
class _Timer:
    bound: BoundTable
    identity: Identity
    timeout_ns: int
    told_us: int = 0  # when the controller was told last

    @property
    def timeout_us(self) -> int:
        return max(LEAST_US, self.timeout_ns // 1000)


class IdleTimeouts:
    """The timers of a program's entries. Callers hold the switch's lock.

    `send(StreamMessageResponse)` gives a notification to the primary controller; `changed` is notified when `tick` has
    to be called earlier than it said. `clock_us` is the clock of the entries' hits.
    """

    def __init__(
        self,
        send: Callable[[Any], bool],
        changed: threading.Condition,
        clock_us: Callable[[], int] = lambda: time.monotonic_ns() // 1000,
    ) -> None:
        self._send = send
        self._changed = changed
        self._clock_us = clock_us
        self._timers: dict[tuple[int, Identity], _Timer] = {}
        self._due: list[
            tuple[int, int, _Timer]
        ] = []  # (when, number, timer); a timer that is no longer kept is skipped
        self._pushed = 0

    def set(self, bound: BoundTable, identity: Identity, timeout_ns: int) -> None:
        """Begin to watch an entry, or no longer when `timeout_ns` is 0."""
        self.forget(bound, identity)
        if timeout_ns:
            timer = self._timers[bound.info.id, identity] = _Timer(bound, identity, timeout_ns)
            self._push(timer, self._clock_us() + timer.timeout_us)
            self._changed.notify_all()

    def forget(self, bound: BoundTable, identity: Identity) -> None:
        """Watch an entry no longer."""
        self._timers.pop((bound.info.id, identity), None)

    def timeout_ns(self, bound: BoundTable, entry: Entry) -> int:
        """The timeout of an entry; 0 for one that has none."""
        timer = self._timers.get((bound.info.id, (entry.match, entry.priority)))
        return 0 if timer is None else timer.timeout_ns

    def since_last_hit_ns(self, entry: Entry) -> int:
        """Nanoseconds since a frame has hit an entry last, or since it was inserted."""
        return max(0, self._clock_us() - entry.hit_us) * 1000

    def tick(self) -> float | None:
        """Tells of entries that are idle by now; returns when to come again (monotonic time in seconds), if at all."""
        now = self._clock_us()
        idle = []
        while self._due and self._due[0][0] <= now:
            _, _, timer = heapq.heappop(self._due)
            if not self._kept(timer):
                continue
            try:
                entry = timer.bound.table.entry(*timer.identity)
            except EntryMissing:  # it went with its program
                self.forget(timer.bound, timer.identity)
                continue
            due = max(entry.hit_us, timer.told_us) + timer.timeout_us
            if due <= now:
                idle.append((timer, entry))
                timer.told_us, due = now, now + timer.timeout_us
            self._push(timer, due)
        for start in range(0, len(idle), ENTRIES_IN_MESSAGE):
            self._send(_notification(idle[start : start + ENTRIES_IN_MESSAGE]))
        return self._due[0][0] / 1e6 if self._due else None

    def _push(self, timer: _Timer, due_us: int) -> None:
        self._pushed += 1
        heapq.heappush(self._due, (due_us, self._pushed, timer))
        if len(self._due) > 2 * len(self._timers) + SPARE:
            self._due = [item for item in self._due if self._kept(item[2])]
            heapq.heapify(self._due)

    def _kept(self, timer: _Timer) -> bool:
        return self._timers.get((timer.bound.info.id, timer.identity)) is timer


def _notification(idle: list[tuple[_Timer, Entry]]) -> Any:
    message = p4r.StreamMessageResponse()
    out = message.idle_timeout_notification
    out.timestamp = time.time_ns()
    for timer, entry in idle:
        told = out.table_entry.add(idle_timeout_ns=timer.timeout_ns)
        timer.bound.put_identity(entry, told)
        told.controller_metadata, told.metadata = timer.bound.metadata.get(timer.identity, (0, b""))
    return message
