"""A network that loses, repeats, delays and reorders, on a virtual clock and from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from typing import Any, Protocol

from p4reduce.protocol.call import Call
from p4reduce.protocol.collective import Collective
from p4reduce.protocol.rtt import RoundTrip
from p4reduce.protocol.source import BlockSource
from p4reduce.stats import CollectiveStats
from p4reduce_contracts.jobs.lease import Lease


class SwitchSide(Protocol):
    """The reference switch, or the executed pipeline behind an adapter."""

    def process(self, rank: int, payload: bytes) -> list[tuple[int, bytes]]: ...


@dataclass(frozen=True)
class NetworkConditions:
    """Probabilities of faults of each datagram, and delays in seconds."""

    drop: float = 0.0
    duplicate: float = 0.0
    late: float = 0.0
    """Probability of an extra delay of up to `late_s`, longer than many rounds."""
    delay_s: float = 0.002
    jitter: float = 1.0
    """The part of the delay that varies between datagrams, which reorders them; 0: no reordering."""
    late_s: float = 3.0
    frame_s: float = 0.0
    """Processing time of a frame at the sending rank, and at the switch for each in and out; frames queue."""


@dataclass
class Member:
    """One rank: the collectives it calls, one after the other, and their results (or which ranks refused, and why)."""

    lease: Lease
    calls: Sequence[tuple[BlockSource, Call]]
    rounds: list[int]
    timeout_s: float = 300.0
    window: int | None = None
    round_trip: RoundTrip = field(default_factory=RoundTrip)
    stats: CollectiveStats = field(default_factory=CollectiveStats)
    make: Callable[..., Collective] = Collective
    running: Collective | None = None
    results: list[Any] = field(default_factory=list)
    busy_until: float = 0.0


class TerribleNetwork:
    """Runs all members to the end; `log` keeps every payload a member sent, in order."""

    def __init__(self, switch: SwitchSide, members: Sequence[Member], conditions: NetworkConditions, seed: int) -> None:
        self.switch, self.members, self.conditions = switch, members, conditions
        self.random = random.Random(seed)
        self.now = 0.0
        self.log: list[tuple[int, bytes]] = []
        self.first_end = 0.0
        """When the last member had finished its first collective."""
        self._order = 0
        self._busy_until = 0.0
        self._flying: list[tuple[float, int, Callable[[], None]]] = []

    def run(self, limit: int = 200_000) -> list[list[Any]]:
        """The results of every member; an AssertionError if it takes more than `limit` events."""
        for member in self.members:
            self._at(self.random.random() * 0.05, partial(self._begin, member))
        for _ in range(limit):
            timers = [(m.running.next_timer, m) for m in self.members if m.running is not None]
            due = min(((t, m.lease.rank, m) for t, m in timers if t is not None), default=None)
            if not self._flying and due is None:
                return [member.results for member in self.members]
            if due is not None and (not self._flying or due[0] <= self._flying[0][0]):
                self.now = max(self.now, due[0])  # a timer may be over when it is set
                running = due[2].running
                assert running is not None
                self._up(due[2], running.on_timer(self.now))
            else:
                self.now, _, event = heappop(self._flying)
                event()
        raise AssertionError(f"no end after {limit} events and {self.now:.1f} virtual seconds")

    def _begin(self, member: Member) -> None:
        member.running = None
        if len(member.results) < len(member.calls):
            source, call = member.calls[len(member.results)]
            member.running = member.make(
                member.lease,
                member.rounds,
                source,
                call,
                member.timeout_s,
                round_trip=member.round_trip,
                window=member.window,
                stats=member.stats,
            )
            self._up(member, member.running.start(self.now))

    def _up(self, member: Member, frames: list[bytes]) -> None:
        for frame in frames:
            self.log.append((member.lease.rank, frame))
            member.busy_until = max(self.now, member.busy_until) + self.conditions.frame_s
            self._send(partial(self._at_switch, member.lease.rank, frame), member.busy_until)
        if member.running is not None and member.running.done:
            member.results.append(member.running.refusals or member.running.result())
            if len(member.results) == 1:
                self.first_end = self.now
            self._begin(member)

    def _at_switch(self, rank: int, payload: bytes) -> None:
        self._busy_until = max(self.now, self._busy_until) + self.conditions.frame_s
        for to, answer in self.switch.process(rank, payload):
            self._busy_until += self.conditions.frame_s
            self._send(partial(self._down, self.members[to], answer), self._busy_until)

    def _down(self, member: Member, payload: bytes) -> None:
        if member.running is not None:
            self._up(member, member.running.receive(payload, self.now))

    def _send(self, arrive: Callable[[], None], leaves: float = 0.0) -> None:
        conditions, chance = self.conditions, self.random.random
        if chance() < conditions.drop:
            return
        for _ in range(1 + (chance() < conditions.duplicate)):
            late = conditions.late_s * chance() if chance() < conditions.late else 0.0
            delay = 1.1 - conditions.jitter + conditions.jitter * self.random.expovariate(1.0)
            self._at(max(self.now, leaves) + late + conditions.delay_s * delay, arrive)

    def _at(self, time: float, event: Callable[[], None]) -> None:
        self._order += 1
        heappush(self._flying, (time, self._order, event))
