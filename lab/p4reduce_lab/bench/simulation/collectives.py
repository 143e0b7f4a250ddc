"""Collectives in virtual time: the worker's engines and the compiled switch program, over links that are simulated.

Nothing of the protocol is modelled: every frame is made and read by the engine of a rank (`protocol/collective.py`) and
run through the switch program. What is simulated is the network between them, and the clock. Links send one frame
after the other, at their rate, and deliver it after their delay; they lose frames at random, and have room for all
that wait. Ranks and switches take no time, so a simulated time is that of the links and of the protocol alone.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs import Floats
from p4reduce.protocol.call import Call, CodecId, Kind
from p4reduce.protocol.collective import Collective
from p4reduce.protocol.rtt import RoundTrip
from p4reduce_lab.bench.simulation.switches import RackPrograms, Stop

WIRE_OVERHEAD_BYTES: Final = 14 + 20 + 8 + 4 + 20
"""Of a frame: Ethernet, IPv4 and UDP headers, frame check sequence, preamble and the gap to the next one."""
_HEADERS: Final = 14 + 20 + 8
_TIMEOUT_S: Final = 600.0

Array32 = NDArray[np.float32]
_Ends = tuple[int, int, int, int]
"""Of a direction of a link: switch and rank that it comes from, switch and rank that it leads to; -1 for none."""


@dataclass(frozen=True)
class Links:
    """What the links are like: each direction of each link on its own."""

    rank_bits_per_s: float
    oversubscription: float = 1.0
    """The rate of a rack's ranks together over that of its trunk."""
    delay_s: float = 1e-6
    """Of one link, one way."""
    loss: float = 0.0
    """The share of the frames that each link loses."""

    def trunk_bits_per_s(self, ranks: int) -> float:
        """The rate of the trunk above `ranks` ranks."""
        return ranks * self.rank_bits_per_s / self.oversubscription


@dataclass
class Direction:
    """One direction of a link."""

    bits_per_s: float
    free_at: float = 0.0
    wire_bytes: int = 0
    frames: int = 0

    def send(self, now: float, payload_bytes: int) -> float:
        """Queue a frame; return when its last bit is sent."""
        size = payload_bytes + WIRE_OVERHEAD_BYTES
        self.free_at = max(now, self.free_at) + 8 * size / self.bits_per_s
        self.wire_bytes += size
        self.frames += 1
        return self.free_at


@dataclass
class Outcome:
    """What one collective took."""

    seconds: float
    """From its call on all ranks until the last rank has the result."""
    rank_bytes_up: int = 0
    """On the wire, of one rank on average."""
    trunk_bytes_up: int = 0
    """On the wire, of one trunk on average; 0 without trunks."""
    rank_bytes_down: int = 0
    trunk_bytes_down: int = 0
    retransmissions: int = 0
    frames: int = 0
    """Frames that switches took in."""


@dataclass
class _Rank:
    collective: Collective
    timer_at: float = float("inf")
    done_at: float | None = None


_Event = tuple[float, int, Stop, bytes | None]
"""When, a number that keeps the order, where, and which frame; None: a rank's timer."""


class Simulation:
    """A job over a tree of switches. `racks`: by rack, its ranks; one rack is one switch, without trunks."""

    def __init__(
        self,
        racks: Sequence[Sequence[int]],
        links: Links,
        *,
        slots: int = 128,
        geometry: str = "default",
        seed: int = 0,
    ) -> None:
        self.programs = RackPrograms(racks, slots, geometry)
        self.links = links
        self.world_size = len(self.programs.leases)
        self.now = 0.0
        self._losses = random.Random(seed)
        self._numbers = itertools.count()
        self._events: list[_Event] = []
        self._directions: dict[_Ends, Direction] = {}
        self._rounds = [[0] * slots for _ in range(self.world_size)]
        self._round_trips = [RoundTrip() for _ in range(self.world_size)]
        self._operations = 0

    def all_reduce(self, tensor_of: Callable[[int], Array32]) -> tuple[Outcome, list[Array32]]:
        """Run one all-reduce of float32; return what it took, and each rank's result."""
        before = {ends: (one.wire_bytes, one.frames) for ends, one in self._directions.items()}
        began = self.now
        ranks = [self._begin(rank, tensor_of(rank)) for rank in range(self.world_size)]
        self._operations += 1
        for rank, side in enumerate(ranks):
            self._after(rank, side, side.collective.start(self.now))
        while any(side.done_at is None for side in ranks):
            self._step(ranks)
        seconds = max(side.done_at or 0.0 for side in ranks) - began
        self._events.clear()  # what is still on the way is of no use to anyone
        self.now = max(self.now, *(one.free_at for one in self._directions.values()))
        outcome = self._outcome(seconds, before)
        outcome.retransmissions = sum(side.collective.stats.retransmissions for side in ranks)
        return outcome, [side.collective.result()[0] for side in ranks]

    def _begin(self, rank: int, tensor: Array32) -> _Rank:
        lease = self.programs.leases[rank]
        source = Floats(tensor).bind(lease.world_size, lease.block_words, False)
        call = Call(self._operations, Kind.ALL_REDUCE, CodecId.FLOAT32, 0, tensor.size)
        return _Rank(
            Collective(lease, self._rounds[rank], source, call, _TIMEOUT_S, round_trip=self._round_trips[rank])
        )

    def _step(self, ranks: Sequence[_Rank]) -> None:
        self.now, _, stop, frame = heapq.heappop(self._events)
        if stop.rank < 0:
            assert frame is not None
            for following, sent in self.programs.arrive(stop, frame):
                self._send(stop, following, sent)
            return
        side = ranks[stop.rank]
        if side.done_at is not None:
            return
        if frame is not None:
            self._after(stop.rank, side, side.collective.receive(frame[_HEADERS:], self.now))
        elif self.now >= side.timer_at:
            side.timer_at = float("inf")
            self._after(stop.rank, side, side.collective.on_timer(self.now))

    def _after(self, rank: int, side: _Rank, frames: Sequence[bytes]) -> None:
        """Send what a rank sends, and see to its timer."""
        for payload in frames:
            stop, frame = self.programs.sent(rank, payload)
            self._send(Stop(rank=rank), stop, frame)
        if side.collective.done:
            side.done_at = self.now
            return
        due = side.collective.next_timer
        if due is not None and due < side.timer_at:
            side.timer_at = due
            self._push(due, Stop(rank=rank), None)

    def _send(self, origin: Stop, stop: Stop, frame: bytes) -> None:
        link = self._direction(origin, stop)
        arrives = link.send(self.now, len(frame) - _HEADERS) + self.links.delay_s
        if not (self.links.loss and self._losses.random() < self.links.loss):
            self._push(arrives, stop, frame)

    def _direction(self, origin: Stop, stop: Stop) -> Direction:
        ends = origin.switch, origin.rank, stop.switch, stop.rank
        if ends not in self._directions:
            rate = self.links.rank_bits_per_s
            if origin.rank < 0 and stop.rank < 0:
                rate = self.links.trunk_bits_per_s(len(self.programs.racks[max(origin.switch, stop.switch) - 1]))
            self._directions[ends] = Direction(rate)
        return self._directions[ends]

    def _push(self, at: float, stop: Stop, frame: bytes | None) -> None:
        heapq.heappush(self._events, (at, next(self._numbers), stop, frame))

    def _outcome(self, seconds: float, before: dict[_Ends, tuple[int, int]]) -> Outcome:
        outcome = Outcome(seconds)
        trunks = max(1, len(self.programs.racks))
        for ends, one in self._directions.items():
            origin, from_rank, stop, to_rank = ends
            old_bytes, old_frames = before.get(ends, (0, 0))
            sent = one.wire_bytes - old_bytes
            if from_rank >= 0:
                outcome.rank_bytes_up += sent
            elif to_rank >= 0:
                outcome.rank_bytes_down += sent
            elif origin > stop:
                outcome.trunk_bytes_up += sent
            else:
                outcome.trunk_bytes_down += sent
            if to_rank < 0:
                outcome.frames += one.frames - old_frames
        outcome.rank_bytes_up //= self.world_size
        outcome.rank_bytes_down //= self.world_size
        outcome.trunk_bytes_up //= trunks
        outcome.trunk_bytes_down //= trunks
        return outcome
