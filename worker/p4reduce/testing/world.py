"""A network of ranks and switches as a heap of events with one virtual clock, from a seed.

Its links lose, repeat, delay and reorder frames, and may have a rate.
"""

from __future__ import annotations

import math
import random
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from typing import Any, NamedTuple

from p4reduce.protocol.blocks import Blocks
from p4reduce.protocol.call import Call
from p4reduce.protocol.collective import Collective
from p4reduce.protocol.datagram import switch_of
from p4reduce.protocol.initial_state import Records
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


class RootSwitches:
    """SwitchSides side by side, of which each has all ranks: frames are payloads."""

    def __init__(self, *switches: SwitchSide) -> None:
        self._switches = SideBySide(*switches)

    def framed(self, rank: int, payload: bytes) -> tuple[Place, bytes]:
        """Return what a rank sends as a frame, and where that arrives: at the rank's port of its switch."""
        return Place(switch_of(payload), rank), payload

    def arrive(self, place: Place, frame: bytes) -> list[tuple[Place, bytes]]:
        """Return what leaves a switch because of a frame that arrives there, each with where it arrives next."""
        return [(Place(-1, rank=rank), answer) for rank, answer in self._switches.process(place.port, frame)]

    def payload(self, frame: bytes) -> bytes:
        """Return the payload of a frame that a switch sent."""
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
class Member:
    """One rank: the collectives it calls, one after the other, and their results (or which ranks refused, and why)."""

    lease: Lease
    calls: Sequence[tuple[Blocks, Call]]
    rounds: Sequence[int]
    """The first round of each slot."""
    timeout_s: float = 300.0
    slots: int | None = None
    """Number of slots that it opens at first; None: all of the lease."""
    round_trip: RoundTrip = field(init=False)
    eager: bool = False
    running: Collective | None = None
    results: list[Any] = field(default_factory=list)
    timer_at: float = math.inf

    def __post_init__(self) -> None:
        self.round_trip = RoundTrip(len(self.lease.switches))
        self.rounds = self._rounds = array("q", self.rounds)
        self.kept: dict[int, Records] = {}
        """The records of collectives, by their number of blocks."""
        self.counted = CollectiveStats()
        """Counts of the collectives that are done."""

    @property
    def stats(self) -> CollectiveStats:
        """Counts of all collectives."""
        counted = self.counted.copy()
        if self.running is not None:
            counted.add(self.running.stats)
        return counted

    def begin(self, source: Blocks, call: Call) -> Collective:
        """Return the next collective of this rank."""
        if (blocks := source.n_blocks) not in self.kept:
            place = self.lease, blocks, self._rounds, self.round_trip
            self.kept[blocks] = Records(*place, slots=self.slots, eager=self.eager)
        return Collective(self.kept[blocks], source, call, self.timeout_s)


class World:
    """Runs all members to the end; `log` keeps every payload a member sent, in order."""

    def __init__(self, switches: Any, members: Sequence[Member], conditions: NetworkConditions, seed: int) -> None:
        """`switches`: RootSwitches, or others with the same methods."""
        self.switches = switches
        self.members, self.conditions = members, conditions
        self.random = random.Random(seed)
        self.now = 0.0
        self.log: list[tuple[int, bytes]] = []
        self.frames: Counter[tuple[int, int]] = Counter()
        """The frames put on each link, before any loss, by the switches at its ends; -1: all ranks."""
        self.first_end = 0.0
        """The time at which the last member had finished its first collective."""
        self._order = 0
        self._busy_until: defaultdict[Any, float] = defaultdict(float)
        """The times until which ranks, switches, and the directions of links with a rate, are busy."""
        self._taken: Counter[int] = Counter()
        """The frames that each switch has taken in."""
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
            member.running = member.begin(*member.calls[len(member.results)])
            self._up(member, member.running.start(self.now))

    def _up(self, member: Member, payloads: list[bytes]) -> None:
        rank = member.lease.rank
        for payload in payloads:
            self.log.append((rank, payload))
            place, frame = self.switches.framed(rank, payload)
            self._put((-1, rank), place, frame, payload, self._work((-1, rank), self.conditions.frame_s))
        if member.running is not None and member.running.done:
            member.counted.add(member.running.stats)
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
        conditions, switch = self.conditions, place.switch
        self._taken[switch] += 1
        stalls = conditions.stall_after and self._taken[switch] % conditions.stall_after == 0
        self._work(switch, conditions.frame_s + (conditions.stall_s if stalls else 0.0))
        for to, sent in self.switches.arrive(place, frame):
            assert len(sent) <= len(frame) + MAX_GROWTH_BYTES, "BMv2 would abort"
            self._put((switch, -1), to, sent, self.switches.payload(sent), self._work(switch, conditions.frame_s))

    def _work(self, what: object, seconds: float, begin: float = 0.0) -> float:
        """Return when a rank, a switch or a link has done what it can begin now, or at `begin`."""
        self._busy_until[what] = ended = max(self.now, begin, self._busy_until[what]) + seconds
        return ended

    def _put(self, origin: tuple[int, int], to: Place, frame: bytes, payload: bytes, leaves: float) -> None:  # noqa: PLR0917
        self.frames[origin[0], to.switch] += 1
        if rate := self.conditions.bits_per_s:
            leaves = self._work((origin, to), 8 * (len(payload) + ENCAP_BYTES) / rate, leaves)
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
