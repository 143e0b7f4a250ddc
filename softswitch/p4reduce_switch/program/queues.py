"""Egress queues as simple_switch has them (bm_sim/queueing.h, QueueingLogicPriRL): of each port one for each priority.

A queue has a depth in packets, and a rate in packets a second at which it is served at most. A packet that finds it
full is dropped. Of the packets that are due those of the highest priority go first.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

DEFAULT_DEPTH: Final = 64
MAX_PRIORITIES: Final = 8
"""simple_switch's limit is 32; the field `priority` of v1model has 3 bits."""

Packet = TypeVar("Packet")


@dataclass(frozen=True, slots=True)
class QueueSetting:
    """A rate or a depth: of one queue, of a port's queues (`priority` None), or of all (`port` None too)."""

    value: int
    port: int | None = None
    priority: int | None = None

    def of(self, port: int, priority: int) -> bool:
        """Return whether it is a setting of this queue."""
        return self.port in (None, port) and self.priority in (None, priority)


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Settings of all queues; a later rate or depth replaces an earlier one."""

    priorities: int = 1
    """Queues of a port, 1 to MAX_PRIORITIES. The largest priority is served first."""
    rates: tuple[QueueSetting, ...] = ()
    """In packets a second; 0: no limit, the default."""
    depths: tuple[QueueSetting, ...] = ()
    """In packets; by default DEFAULT_DEPTH."""


DEFAULT_QUEUES: Final = QueueSettings()


@dataclass(slots=True)
class _Queue(Generic[Packet]):
    port: int
    priority: int
    depth: int
    interval_ns: int
    """Between two packets."""
    last_ns: int
    """When the last packet that came is due."""
    packets: deque[tuple[int, int, Packet]] = field(default_factory=deque)
    """When each is due, its number in order of arrival, and the packet."""


class EgressQueues(Generic[Packet]):
    """All queues. Times are in ns on one clock."""

    def __init__(self, settings: QueueSettings = DEFAULT_QUEUES) -> None:
        self.priorities = settings.priorities
        self.blocked: set[int] = set()
        """Ports whose queues are not served at present."""
        self.dropped = 0
        """Packets that found their queue full."""
        self._settings = settings
        self._queues: dict[tuple[int, int], _Queue[Packet]] = {}
        self._waiting: list[_Queue[Packet]] = []
        """Queues with packets."""
        self._arrived = 0

    def depth(self, port: int, priority: int) -> int:
        """Return the packets in a queue."""
        queue = self._queues.get((port, priority))
        return 0 if queue is None else len(queue.packets)

    def push(self, port: int, priority: int, packet: Packet, now_ns: int) -> bool:
        """Add a packet; False if the queue is full. `priority` is below `priorities`."""
        queue = self._queues.get((port, priority)) or self._add(port, priority, now_ns)
        packets = queue.packets
        if len(packets) >= queue.depth:
            self.dropped += 1
            return False
        queue.last_ns = max(now_ns, queue.last_ns + queue.interval_ns)
        if not packets:
            self._waiting.append(queue)
        self._arrived += 1
        packets.append((queue.last_ns, self._arrived, packet))
        return True

    def pop(self, now_ns: int) -> tuple[int, int, Packet] | None:
        """Remove the packet to be served next; return port, priority and packet, or None if none is due."""
        best: _Queue[Packet] | None = None
        for queue in self._waiting:
            if queue.packets[0][0] > now_ns or queue.port in self.blocked:
                continue
            if best is None or _order(queue) < _order(best):
                best = queue
        if best is None:
            return None
        packet = best.packets.popleft()[2]
        if not best.packets:
            self._waiting.remove(best)
        return best.port, best.priority, packet

    def next_ns(self) -> int | None:
        """Return when the next packet is due, which may be past; None when there is none, or all wait for ports."""
        return min((queue.packets[0][0] for queue in self._waiting if queue.port not in self.blocked), default=None)

    def _add(self, port: int, priority: int, now_ns: int) -> _Queue[Packet]:
        """Make a queue; its first packet waits as one that follows another, as on simple_switch."""
        rate, depth = 0, DEFAULT_DEPTH
        for setting in self._settings.rates:
            rate = setting.value if setting.of(port, priority) else rate
        for setting in self._settings.depths:
            depth = setting.value if setting.of(port, priority) else depth
        interval_ns = 1_000_000_000 // rate if rate else 0
        queue: _Queue[Packet] = _Queue(port, priority, depth, interval_ns, now_ns)
        self._queues[port, priority] = queue
        return queue


def _order(queue: _Queue[Packet]) -> tuple[int, int, int]:
    due_ns, number, _ = queue.packets[0]
    return -queue.priority, due_ns, number
