"""A network of ranks and switches as a heap of events with one virtual clock, from a seed.

Its links lose, repeat, delay and reorder frames, and may have a rate.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple, Protocol

from p4reduce.protocol.blocks import Blocks
from p4reduce.protocol.call import Call
from p4reduce.protocol.collective import Collective
from p4reduce.protocol.datagram import switch_of
from p4reduce.protocol.rtt import RoundTrip
from p4reduce.stats import CollectiveStats
from p4reduce.testing.reference_switch import SideBySide, SwitchSide
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire.numbers import MAX_GROWTH_BYTES
from p4reduce_runtime.underlay import ENCAP_BYTES


class Place(NamedTuple):
    """The end of a frame's way: a port of a switch, or a rank (then `switch` is -1)."""

    switch: int
    port: int = 0
    rank: int = -1


BURST_BYTES: Final = 65536
"""Number of bytes that an idle direction of a link with a rate sends at once."""
Link = tuple[int, int]
"""A pair of switches, from the first to the second; -1: all ranks."""


class Switches(Protocol):
    """Switches, and where their ports lead."""

    def framed(self, rank: int, payload: bytes) -> tuple[Place, bytes]:
        """Return what a rank sends as a frame, and where that arrives."""
        ...

    def arrive(self, place: Place, frame: bytes) -> list[tuple[Place, bytes]]:
        """Return what leaves a switch because of a frame that arrives there, each with where it arrives next."""
        ...

    def payload(self, frame: bytes) -> bytes:
        """Return the payload of a frame that a switch sent."""
        ...


class RootSwitches:
    """SwitchSides side by side, of which each has all ranks: frames are payloads."""

    def __init__(self, *switches: SwitchSide) -> None:
        self._switches = SideBySide(*switches)

    def framed(self, rank: int, payload: bytes) -> tuple[Place, bytes]:
        """Return the payload, and the rank's port of its switch."""
        return Place(switch_of(payload), rank), payload

    def arrive(self, place: Place, frame: bytes) -> list[tuple[Place, bytes]]:
        """Return what a switch answers."""
        return [(Place(-1, rank=rank), answer) for rank, answer in self._switches.process(place.port, frame)]

    def payload(self, frame: bytes) -> bytes:
        """Return the frame."""
        return frame


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
    """Processing time of a frame at the sending rank, and at a switch for each in and out; frames queue."""
    bits_per_s: float = 0.0
    """Bits a second in each direction of each link, which keeps the order of frames; 0: no limit."""
    stall_after: int = 0
    """Number of frames after which a switch takes none in for `stall_s`; 0: it always takes them in."""
    stall_s: float = 0.0
    start_s: float = 0.05
    """Seconds within which the ranks begin, at random."""


@dataclass
class TokenBucket:
    """One direction of a link with a rate (tc-tbf)."""

    bytes_per_s: float
    tokens: float = BURST_BYTES
    free_at: float = 0.0

    def leaves(self, now: float, size: int) -> float:
        """Return when a frame of `size` bytes that comes now leaves."""
        at = max(now, self.free_at)
        self.tokens = min(BURST_BYTES, self.tokens + (at - self.free_at) * self.bytes_per_s)
        if self.tokens < size:
            at += (size - self.tokens) / self.bytes_per_s
            self.tokens = size
        self.tokens -= size
        self.free_at = at
        return at


@dataclass
class Member:
    """One rank: the collectives it calls, one after the other, and their results (or which ranks refused, and why)."""

    lease: Lease
    calls: Sequence[tuple[Blocks, Call]]
    rounds: list[int]
    timeout_s: float = 300.0
    slots: int | None = None
    """Number of slots that it opens at first; None: all of the lease."""
    round_trip: RoundTrip = field(init=False)
    stats: CollectiveStats = field(default_factory=CollectiveStats)
    make: Callable[..., Collective] = Collective
    running: Collective | None = None
    results: list[Any] = field(default_factory=list)
    busy_until: float = 0.0
    timer_at: float = math.inf

    def __post_init__(self) -> None:
        self.round_trip = RoundTrip(len(self.lease.switches))


@dataclass
class _Busy:
    """A switch: until when it is, and how many frames it has taken in."""

    until: float = 0.0
    taken: int = 0


class World:
    """Runs all members to the end; `log` keeps every payload a member sent, in order.

    `frames` and `bytes` count what was put on each link, UDP payloads, before any loss.
    """

    def __init__(self, switches: Switches, members: Sequence[Member], conditions: NetworkConditions, seed: int) -> None:
        self.switches = switches
        self.members, self.conditions = members, conditions
        self.random = random.Random(seed)
        self.now = 0.0
        self.log: list[tuple[int, bytes]] = []
        self.frames: Counter[Link] = Counter()
        self.bytes: Counter[Link] = Counter()
        self.first_end = 0.0
        """The time at which the last member had finished its first collective."""
        self._order = 0
        self._busy: dict[int, _Busy] = {}
        self._buckets: dict[tuple[int, int, Place], TokenBucket] = {}
        self._flying: list[tuple[float, int, Callable[[], None]]] = []

    def run(self, limit: int = 200_000) -> list[list[Any]]:
        """The results of every member; an AssertionError if it takes more than `limit` events."""
        for member in self.members:
            self._at(self.now + self.random.random() * self.conditions.start_s, partial(self._begin, member))
        for _ in range(limit):
            if not self._flying:
                return [member.results for member in self.members]
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
                slots=member.slots,
                stats=member.stats,
            )
            self._up(member, member.running.start(self.now))

    def _up(self, member: Member, payloads: list[bytes]) -> None:
        rank = member.lease.rank
        for payload in payloads:
            self.log.append((rank, payload))
            member.busy_until = max(self.now, member.busy_until) + self.conditions.frame_s
            place, frame = self.switches.framed(rank, payload)
            self._put((-1, rank), place, frame, payload, member.busy_until)
        if member.running is not None and member.running.done:
            member.results.append(member.running.refusals or member.running.result())
            if len(member.results) == 1:
                self.first_end = self.now
            self._begin(member)
        self._set_timer(member)

    def _set_timer(self, member: Member) -> None:
        due = None if member.running is None else member.running.next_timer
        if due is not None and due < member.timer_at:
            member.timer_at = due
            self._at(max(self.now, due), partial(self._on_timer, member, due))  # it may be over when it is set

    def _on_timer(self, member: Member, due: float) -> None:
        if due != member.timer_at:  # an earlier one was set since
            return
        member.timer_at = math.inf
        running = member.running
        if running is not None and running.next_timer is not None and running.next_timer <= self.now:
            self._up(member, running.on_timer(self.now))
        else:
            self._set_timer(member)

    def _at_switch(self, place: Place, frame: bytes) -> None:
        conditions, busy = self.conditions, self._busy.setdefault(place.switch, _Busy())
        busy.taken += 1
        stalls = conditions.stall_after and busy.taken % conditions.stall_after == 0
        busy.until = max(self.now, busy.until) + conditions.frame_s + (conditions.stall_s if stalls else 0.0)
        for to, sent in self.switches.arrive(place, frame):
            assert len(sent) <= len(frame) + MAX_GROWTH_BYTES, "BMv2 would abort"
            busy.until += conditions.frame_s
            self._put((place.switch, -1), to, sent, self.switches.payload(sent), busy.until)

    def _put(self, origin: tuple[int, int], to: Place, frame: bytes, payload: bytes, leaves: float) -> None:  # noqa: PLR0917
        link = origin[0], to.switch
        self.frames[link] += 1
        self.bytes[link] += len(payload)
        if self.conditions.bits_per_s:
            bucket = self._buckets.setdefault((*origin, to), TokenBucket(self.conditions.bits_per_s / 8))
            leaves = bucket.leaves(max(self.now, leaves), len(payload) + ENCAP_BYTES)
        if to.rank >= 0:
            self._send(partial(self._down, self.members[to.rank], payload), leaves)
        else:
            self._send(partial(self._at_switch, to, frame), leaves)

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
