"""A rank's connection to the switch under one lease: slots, transport, window and measurements of the path.

Each epoch of the job has a new one; the communicator (communicator.py) stays.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Hashable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from p4reduce.errors import CollectiveTimeoutError, P4ReduceError
from p4reduce.paths.gso import DAMAGED_COLLECTIVES, FEWEST_SLOTS, GsoProbe
from p4reduce.paths.waits import Waits
from p4reduce.paths.window import Window
from p4reduce.protocol.blocks import UNTOUCHED, Blocks
from p4reduce.protocol.call import Call
from p4reduce.protocol.channel import Channel, make_channel
from p4reduce.protocol.collective import Collective
from p4reduce.protocol.rtt import RoundTrip
from p4reduce.stats import CollectiveStats
from p4reduce.trace import opened
from p4reduce.transport import Transport, UdpTransport
from p4reduce_contracts.jobs.answers import WaitingSlot
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_runtime.datagrams import ENCAP_BYTES
from p4reduce_runtime.logs import event

_log = logging.getLogger(__name__)

_LONGEST_WAIT_S: Final = 0.1
"""How often a running collective looks whether the job was reset."""
_LONGEST_PROBE_S: Final = 0.25
"""How long the answers to a GSO probe are waited for."""


class SwitchConnection:
    """Runs the collectives under one lease, one at a time."""

    def __init__(
        self,
        lease: Lease,
        transport: Transport,
        *,
        window: int | None,
        clock: Callable[[], float] = time.monotonic,
        before: SwitchConnection | None = None,
    ) -> None:
        """`window`: a fixed number of slots; None adapts it. `before`: that of the epoch before, on the same path."""
        self.lease = lease
        self.transport = transport
        self.slot_rounds = [lease.first_round] * lease.slot_count
        self.round_trip = RoundTrip()
        self.window = Window(lease.slot_count, window)
        self._clock = clock
        self._gso: GsoProbe = before._gso if before is not None and before._gso.damages else GsoProbe()
        self.running: Collective | None = None
        """The collective that takes part now."""
        self._trace = opened()
        self.channel = self._open_channel()
        """What lets a collective use the transport's socket by itself; None where it cannot."""

    def slots_of(self, alike: Hashable, *, few: bool = False) -> int:
        """Return how many slots the next collective opens first, the same number on all ranks (window.py)."""
        return self.window.slots_of(alike, self.lease.columns, few=few)

    def waiting(self) -> WaitingSlot | None:
        """Return what the running collective waits for; None if there is none. May be called from any thread."""
        running = self.running
        return None if running is None else running.waiting(self._clock())

    def run(
        self,
        call: Call,
        blocks: Blocks,
        slots: int,
        timeout_s: float,
        stats: CollectiveStats,
        lost: Callable[[], P4ReduceError | None],
        *,
        keep_words: bool,
        at_wait: Callable[[], None] | None = None,
    ) -> Collective:
        """Take part in a collective that opens `slots` slots at first, until it is done; return it.

        Raises CollectiveError, and what `lost` returns once it returns an error, after the frames that have arrived
        were read. `at_wait` is called with each log line of a collective that waits.
        """
        collective = Collective(
            self.lease,
            self.slot_rounds,
            blocks,
            call,
            timeout_s,
            round_trip=self.round_trip,
            window=self.window.slots,
            slots=slots,
            proposal=self.window.proposal,
            stats=stats,
            keep_words=keep_words,
        )
        now = self._clock()
        waits = Waits(self.lease, self.transport, collective, now, self._trace, at_wait)
        self.running = collective
        try:
            if self.channel is not None:
                collective.begin(now)
                while not collective.done and lost() is None:
                    wait_s = min(_LONGEST_WAIT_S, collective.copy())
                    self._send(collective.run(self.channel, self._clock() + wait_s), stats)
                    waits.look(self._clock())
            else:
                self._send(collective.start(now), stats)
            self._exchange_frames(collective, now, lost, waits)
        except CollectiveTimeoutError as error:
            raise waits.too_late(error, self._clock()) from None
        finally:
            self.running = None
            if stats.corrupt or stats.malformed:
                self._saw_damage()
            if self._trace is not None:
                cost = {name: count for name, count in stats.as_dict().items() if count}
                waits.end(ended := self._clock())
                self._trace.span(str(call), now, ended, self.lease, {"slots": collective.slots, **cost})
        return collective

    def finished(self, collective: Collective, blocks: Blocks, slots: int, alike: Hashable) -> tuple[int, ...]:
        """Adapt the window to a collective that is done; return how many blocks at least one rank held, by segment.

        Empty for a collective that was refused. `alike`: what this call has in common with later ones like it; None:
        nothing is remembered for them.
        """
        limited = slots < self.window.slots or bool(collective.refusals)
        self.window.finished(collective.next_window, collective.stats, limited=limited)
        if collective.refusals:
            return ()
        union_blocks = union_of(blocks, collective.agreed_exponents)
        if alike is not None:
            self.window.saw(alike, sum(union_blocks), blocks.n_blocks)
        self.probe_gso(collective)
        return union_blocks

    def _exchange_frames(
        self, collective: Collective, now: float, lost: Callable[[], P4ReduceError | None], waits: Waits
    ) -> None:
        """Take part by datagrams, where there is no channel, and read what has arrived once `lost` is an error."""
        clock, receive = self._clock, self.transport.receive
        while (timer := collective.next_timer) is not None:
            failure = lost()
            wait_s = 0.0 if failure is not None else min(max(0.0, timer - now), _LONGEST_WAIT_S, collective.copy())
            frames = receive(wait_s)
            now = clock()
            if frames or collective.waits_for_blocks and failure is None:
                collective.stats.frames_down += len(frames)
                collective.stats.bytes_down += sum(map(len, frames)) + ENCAP_BYTES * len(frames)
                answers = collective.receive_burst(frames, now)
                if failure is None:
                    self._send(answers, collective.stats)
            elif failure is not None:  # but not before all that had arrived: the sum may be complete with it
                raise failure.with_traceback(None)
            late_s = now - timer  # what has arrived comes first: it may be the answer that the timer misses
            if failure is None and (late_s >= 0 and not frames or late_s >= _LONGEST_WAIT_S):
                self._send(collective.on_timer(now), collective.stats)
            waits.look(now)

    def probe_gso(self, collective: Collective) -> None:
        """Measure whether the path carries GSO datagrams, and how long ones, unless that is known."""
        channel, transport = self.channel, self.transport
        if channel is None or self._gso.known or collective.slots < FEWEST_SLOTS:
            return
        if isinstance(transport, UdpTransport):
            timeout_s = min(_LONGEST_PROBE_S, 2 * self.round_trip.timeout_s)
            self._gso.probe(transport, self.lease, collective.answered_frame, timeout_s)
            channel.plain, channel.run_bytes = not self._gso.allowed, self._gso.longest

    def _saw_damage(self) -> None:
        """Stop sending runs, and ask for none, when frames have arrived damaged in several collectives."""
        if self.channel is None:
            return
        ends = self._gso.saw_damage()
        if self._gso.damages:
            self.channel.plain = True
            self.transport.send([b""])  # again with each one, as it may be lost
        if ends:
            event(
                _log,
                logging.WARNING,
                "segmentation off",
                job=self.lease.name,
                rank=self.lease.rank,
                cause=f"frames arrived damaged in {DAMAGED_COLLECTIVES} collectives",
            )

    def close_channel(self) -> None:
        """Give the channel's hold on the socket back; only when no collective runs over it."""
        if self.channel is not None:
            self.channel.close()
            self.channel = None

    def close(self) -> None:
        """Give the transport back, as `close_channel` does the other."""
        self.close_channel()
        self.transport.close()

    def _open_channel(self) -> Channel | None:
        if isinstance(self.transport, UdpTransport) and self._clock is time.monotonic:
            return make_channel(self.transport.descriptor, plain=not self._gso.allowed)
        return None

    def _send(self, frames: list[bytes], stats: CollectiveStats) -> None:
        if frames:
            stats.frames_up += len(frames)
            stats.bytes_up += sum(map(len, frames)) + ENCAP_BYTES * len(frames)
            self.transport.send(frames)


def union_of(blocks: Blocks, agreed: NDArray[np.uint8]) -> tuple[int, ...]:
    """Return how many blocks at least one rank held, of each part; `agreed`: their exponents."""
    held = agreed != UNTOUCHED
    return tuple(int(np.count_nonzero(held[start:end])) for start, end in itertools.pairwise(blocks.starts))
