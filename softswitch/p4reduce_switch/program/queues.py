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


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Settings of all queues; a later rate or depth replaces an earlier one."""

    priorities: int = 1
    """Queues of a port, 1 to MAX_PRIORITIES. The largest priority is served first."""
    rates: tuple[QueueSetting, ...] = ()
    """Packets a second; 0: no limit, the default."""
    depths: tuple[QueueSetting, ...] = ()
    """Packets that a queue holds; by default DEFAULT_DEPTH."""


DEFAULT_QUEUES: Final = QueueSettings()


@dataclass(slots=True)
class _Queue(Generic[Packet]):
    port: int
    priority: int
    depth: int
    interval_ns: int
    """Nanoseconds between two packets."""
    last_ns: int
    """The time at which the last packet that came is due."""
    packets: deque[tuple[int, int, Packet]] = field(default_factory=deque)
    """The packets, each after the time at which it is due and its number in order of arrival."""
    dropped: int = 0
    """Packets that found it full."""


class EgressQueues(Generic[Packet]):
    """All queues. Times are in ns on one clock. They outlive a program: rates and depths hold for the next one."""

    def __init__(self, settings: QueueSettings = DEFAULT_QUEUES) -> None:
        self.priorities = settings.priorities
        self.blocked: set[int] = set()
        """Ports whose queues are not served at present."""
        self.are_set = False
        """Whether a rate or a depth was set, so that programs are to have queues which look at none."""
        self._depth = DEFAULT_DEPTH
        self._interval_ns = 0
        self._of_port: dict[int, list[_Queue[Packet]]] = {}
        self._waiting: list[_Queue[Packet]] = []
        """Queues with packets."""
        self._arrived = 0
        for rate in settings.rates:
            self.set_rate(rate, now_ns=0)
        for depth in settings.depths:
            self.set_depth(depth, now_ns=0)

    def set_rate(self, rate: QueueSetting, now_ns: int) -> None:
        """Set a rate in packets a second, from the next packet on; 0: no limit. Those that wait keep their time."""
        self.are_set = True
        interval_ns = 1_000_000_000 // rate.value if rate.value else 0
        for queue in self._chosen(rate, now_ns):
            queue.interval_ns = interval_ns
        if rate.port is None:
            self._interval_ns = interval_ns

    def set_depth(self, depth: QueueSetting, now_ns: int) -> None:
        """Set a depth in packets. Packets that wait stay, also where there are more; 0 drops all that come."""
        self.are_set = True
        for queue in self._chosen(depth, now_ns):
            queue.depth = depth.value
        if depth.port is None:
            self._depth = depth.value

    def _chosen(self, setting: QueueSetting, now_ns: int) -> list[_Queue[Packet]]:
        """Return the queues of a setting. Those of a port that it names are made, as on simple_switch."""
        if setting.port is None:
            return self._all()
        queues = self._queues(setting.port, now_ns)
        return queues if setting.priority is None else [queues[setting.priority]]

    def clear(self, now_ns: int) -> None:
        """Remove all packets, for another program, whose packets do not wait for them."""
        for queue in self._waiting:
            queue.packets.clear()
            queue.last_ns = min(queue.last_ns, now_ns)
        self._waiting.clear()

    @property
    def dropped(self) -> int:
        """Packets that found their queue full."""
        return sum(self.drops().values())

    def drops(self) -> dict[tuple[int, int], int]:
        """Return the packets that found their queue full, by port and priority, where there are any."""
        return {(queue.port, queue.priority): queue.dropped for queue in self._all() if queue.dropped}

    def depth(self, port: int, priority: int) -> int:
        """Return the packets in a queue."""
        queues = self._of_port.get(port)
        return 0 if queues is None else len(queues[priority].packets)

    def push(self, port: int, priority: int, packet: Packet, now_ns: int) -> bool:
        """Add a packet; False if the queue is full. `priority` is below `priorities`."""
        queue = self._queues(port, now_ns)[priority]
        packets = queue.packets
        if len(packets) >= queue.depth:
            queue.dropped += 1
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

    def _all(self) -> list[_Queue[Packet]]:
        return [queue for queues in [*self._of_port.values()] for queue in queues]  # a copy: metrics take no lock

    def _queues(self, port: int, now_ns: int) -> list[_Queue[Packet]]:
        """Return a port's queues by priority; the first packet of a new one waits as one that follows another."""
        queues = self._of_port.get(port)
        if queues is None:
            queues = self._of_port[port] = [
                _Queue(port, priority, self._depth, self._interval_ns, now_ns) for priority in range(self.priorities)
            ]
        return queues


def _order(queue: _Queue[Packet]) -> tuple[int, int, int]:
    due_ns, number, _ = queue.packets[0]
    return -queue.priority, due_ns, number
