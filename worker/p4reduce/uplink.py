"""One rank's way to the switch, for as long as a lease lasts: its slots, the transport, what is known of the path.

In the job's next epoch all of it begins anew, with another lease; the session (session.py) stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from p4reduce.errors import CollectiveTimeoutError, P4ReduceError
from p4reduce.protocol.call import Call
from p4reduce.protocol.collective import AnyCollective, make_channel, make_collective
from p4reduce.protocol.compiled.channel import Channel
from p4reduce.protocol.compiled.collective import CompiledCollective
from p4reduce.protocol.rtt import RoundTrip
from p4reduce.protocol.source import BlockSource
from p4reduce.protocol.window import Window
from p4reduce.runs import FEWEST_SLOTS, Runs
from p4reduce.stats import CollectiveStats
from p4reduce.transport import Transport, UdpTransport
from p4reduce.waits import Waits
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_runtime.datagrams import ENCAP_BYTES

_LONGEST_WAIT_S: Final = 0.1
"""How often a running collective looks whether the job was reset."""
_LONGEST_TRIAL_S: Final = 0.25
"""How long answers are waited for that tell whether frames may leave in runs."""


class Uplink:
    """What collectives under one lease share; for one collective at a time."""

    def __init__(
        self,
        lease: Lease,
        transport: Transport,
        *,
        window: int | None,
        clock: Callable[[], float] = time.monotonic,
        slot_rounds: Sequence[int] | None = None,
    ) -> None:
        """`window`: a fixed number of slots; None adapts it. `slot_rounds`: each slot's first round, else 0."""
        self.lease = lease
        self.transport = transport
        self.slot_rounds = list(slot_rounds or [0] * lease.slot_count)
        self.round_trip = RoundTrip()
        self.window = Window(lease.slot_count, window)
        self._clock = clock
        self._runs = Runs()
        self.channel = self._open_channel()
        """What lets the compiled engine use the transport's socket by itself; None where it cannot."""

    def collective(
        self, call: Call, source: BlockSource, slots: int, timeout_s: float, stats: CollectiveStats, *, keep_words: bool
    ) -> AnyCollective:
        """Return this rank's side of a collective that opens `slots` slots."""
        return make_collective(
            self.lease,
            self.slot_rounds,
            source,
            call,
            timeout_s,
            round_trip=self.round_trip,
            window=slots,
            refusal_window=self.window.slots,
            proposal=self.window.proposal,
            stats=stats,
            keep_words=keep_words,
        )

    def drive(self, collective: AnyCollective, now: float, lost: Callable[[], P4ReduceError | None]) -> None:
        """Carry a collective's frames until it is done.

        Raises CollectiveError, and what `lost` returns once it returns an error, after a last look at what has arrived.
        """
        waits = Waits(self.lease, self.transport, collective, now)
        try:
            self._carry(collective, now, lost, waits)
        except CollectiveTimeoutError as error:
            raise waits.too_late(error, self._clock()) from None

    def _carry(
        self, collective: AnyCollective, now: float, lost: Callable[[], P4ReduceError | None], waits: Waits
    ) -> None:
        clock, receive = self._clock, self.transport.receive
        if self.channel is not None and isinstance(collective, CompiledCollective):
            collective.begin(now)
            while not collective.done and lost() is None:
                self._send(collective.run(self.channel, clock() + _LONGEST_WAIT_S), collective.stats)
                waits.look(clock())
        else:
            self._send(collective.start(now), collective.stats)
        while (timer := collective.next_timer) is not None:
            failure = lost()
            frames = receive(0.0 if failure is not None else min(max(0.0, timer - now), _LONGEST_WAIT_S))
            now = clock()
            if frames:
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

    def try_runs(self, collective: AnyCollective) -> None:
        """Find out whether frames may leave in runs, and how long ones, as long as that is not known."""
        channel, transport = self.channel, self.transport
        if channel is None or self._runs.known or collective.slots < FEWEST_SLOTS:
            return
        if isinstance(collective, CompiledCollective) and isinstance(transport, UdpTransport):
            timeout_s = min(_LONGEST_TRIAL_S, 2 * self.round_trip.timeout_s)
            self._runs.try_path(transport, self.lease, collective.answered_frame, timeout_s)
            channel.plain, channel.run_bytes = not self._runs.allowed, self._runs.longest

    def close_channel(self) -> None:
        """Give the compiled engine's hold on the socket back; only when no collective runs over it."""
        if self.channel is not None:
            self.channel.close()
            self.channel = None

    def close(self) -> None:
        """Give the transport back, as `close_channel` does the other."""
        self.close_channel()
        self.transport.close()

    def _open_channel(self) -> Channel | None:
        if isinstance(self.transport, UdpTransport) and self._clock is time.monotonic:
            return make_channel(self.transport.descriptor, plain=not self._runs.allowed)
        return None

    def _send(self, frames: list[bytes], stats: CollectiveStats) -> None:
        if frames:
            stats.frames_up += len(frames)
            stats.bytes_up += sum(map(len, frames)) + ENCAP_BYTES * len(frames)
            self.transport.send(frames)
