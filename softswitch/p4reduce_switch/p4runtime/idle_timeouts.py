"""Idle timeouts: notifications to the primary controller about table entries that no packet has hit.

The timer of an entry runs from its last hit, its insertion or its last notification, whichever came last. An entry is
examined when its timer may have expired; the tables are not scanned.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_switch.program.errors import EntryMissingError
from p4reduce_switch.program.state.tables import Entry, EntryKey, Table

MIN_TIMEOUT_US = 10_000
"""Shorter timeouts are stored and read back as given, but expire after this time."""
MAX_ENTRIES_PER_NOTIFICATION = 512
MAX_STALE_TIMERS = 64
"""Removed timers that the heap may hold besides as many as are active."""


def monotonic_us() -> int:
    """Return the time of the monotonic clock."""
    return time.monotonic_ns() // 1000


@dataclass
class _Timer:
    table: Table
    key: EntryKey
    notification: p4r.TableEntry
    """The entry as IdleTimeoutNotification carries it: a TableEntry with table, match, priority and metadata."""
    notified_us: int = 0

    @property
    def timeout_us(self) -> int:
        return max(MIN_TIMEOUT_US, self.notification.idle_timeout_ns // 1000)


class IdleTimeouts:
    """The timers of a program's entries. Callers hold the switch's lock.

    `send(StreamMessageResponse)` sends a notification to the primary controller; `changed` is notified when `tick`
    must be called earlier than the time it returned. `clock_us` is the clock of the entries' hits.
    """

    def __init__(
        self,
        send: Callable[[p4r.StreamMessageResponse], bool],
        changed: threading.Condition,
        clock_us: Callable[[], int] = monotonic_us,
    ) -> None:
        self._send = send
        self._changed = changed
        self._clock_us = clock_us
        self._timers: dict[tuple[int, EntryKey], _Timer] = {}
        """The running timers, by table id and entry."""
        self._heap: list[tuple[int, int, _Timer]] = []
        """(expiry, sequence number, timer); removed timers are skipped."""
        self._pushed = 0

    def add(self, table: Table, key: EntryKey, notification: p4r.TableEntry) -> None:
        """Start the timer of an entry. `notification` is a TableEntry with the timeout, which is sent on expiry."""
        timer = self._timers[notification.table_id, key] = _Timer(table, key, notification)
        self._push(timer, self._clock_us() + timer.timeout_us)
        self._changed.notify_all()

    def remove(self, table_id: int, key: EntryKey) -> None:
        """Stop the timer of an entry, if it has one."""
        self._timers.pop((table_id, key), None)

    def timeout_ns(self, table_id: int, key: EntryKey) -> int:
        """Return the timeout of an entry; 0 for one that has none."""
        timer = self._timers.get((table_id, key))
        return 0 if timer is None else timer.notification.idle_timeout_ns

    def since_last_hit_ns(self, entry: Entry) -> int:
        """Return the nanoseconds since a packet hit an entry last, or since it was inserted."""
        return max(0, self._clock_us() - entry.hit_us) * 1000

    def tick(self) -> float | None:
        """Notify about entries that are idle now; return when to call again (monotonic, seconds), or None."""
        now = self._clock_us()
        idle = []
        while self._heap and self._heap[0][0] <= now:
            _, _, timer = heapq.heappop(self._heap)
            if not self._is_active(timer):
                continue
            try:
                entry = timer.table.entry(*timer.key)
            except EntryMissingError:
                self.remove(timer.notification.table_id, timer.key)
                continue
            expiry = max(entry.hit_us, timer.notified_us) + timer.timeout_us
            if expiry <= now:
                idle.append(timer.notification)
                timer.notified_us, expiry = now, now + timer.timeout_us
            self._push(timer, expiry)
        for start in range(0, len(idle), MAX_ENTRIES_PER_NOTIFICATION):
            message = p4r.StreamMessageResponse()
            message.idle_timeout_notification.timestamp = time.time_ns()
            message.idle_timeout_notification.table_entry.extend(idle[start : start + MAX_ENTRIES_PER_NOTIFICATION])
            self._send(message)
        return self._heap[0][0] / 1e6 if self._heap else None

    def _push(self, timer: _Timer, expiry_us: int) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (expiry_us, self._pushed, timer))
        if len(self._heap) > 2 * len(self._timers) + MAX_STALE_TIMERS:
            self._heap = [item for item in self._heap if self._is_active(item[2])]
            heapq.heapify(self._heap)

    def _is_active(self, timer: _Timer) -> bool:
        return self._timers.get((timer.notification.table_id, timer.key)) is timer
