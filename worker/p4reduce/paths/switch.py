"""The path over the switches of one lease: slots, transport, window and measurements of the network.

Each epoch of the job has a new one; the communicator (communicator.py) stays.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from p4reduce.collectives import Contribution
from p4reduce.epoch import of_rank
from p4reduce.errors import CollectiveTimeoutError
from p4reduce.paths.gso import DAMAGED_COLLECTIVES, FEWEST_SLOTS, GsoProbe
from p4reduce.paths.path import Lost
from p4reduce.paths.waits import Waits
from p4reduce.paths.window import Window
from p4reduce.protocol.blocks import Blocks
from p4reduce.protocol.channel import make_channel
from p4reduce.protocol.collective import Collective
from p4reduce.protocol.datagram import Datagram
from p4reduce.protocol.deadline import Deadline
from p4reduce.protocol.initial_state import KeptRecords, first_rounds
from p4reduce.protocol.rtt import RoundTrip
from p4reduce.stats import BLOCKS_DOWN, CORRUPT, LOSSES, MALFORMED, ROUNDS, CollectiveStats
from p4reduce.trace import opened
from p4reduce.transport import Transport, sockets_of
from p4reduce_contracts.jobs.answers import WaitingSlot
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_runtime import metrics
from p4reduce_runtime.logs import event
from p4reduce_runtime.underlay import ENCAP_BYTES

_log = logging.getLogger(__name__)

_LONGEST_WAIT_S: Final = 0.1
"""Seconds between two looks of a running collective at whether the job was reset."""
_LONGEST_PROBE_S: Final = 0.25
"""Seconds that the answers to a GSO probe are waited for."""


class SwitchPath:
    """Runs the collectives under one lease, one at a time."""

    in_memory: Final = False
    least_host_bytes: Final = 1 << 18  # a smaller collective costs less when each rank sends for itself

    def __init__(
        self,
        lease: Lease,
        transport: Transport,
        *,
        total: CollectiveStats | None = None,
        clock: Callable[[], float] = time.monotonic,
        before: SwitchPath | None = None,
        shards: int = 1,
    ) -> None:
        """`before`: that of the epoch before, on the same path. `shards`: number of paths over this host's link.

        `total`: what each collective's counts are added to, also those of one that fails.
        """
        self.lease = lease
        self.transport = transport
        self.slot_rounds = first_rounds(lease)
        self.round_trip = RoundTrip(len(lease.switches))
        self.window = Window(lease.slot_count, len(lease.switches) * lease.slots_together, shards)
        self._enough = Window.ENOUGH * len(lease.switches) // shards
        self.total = CollectiveStats() if total is None else total
        self.clock = clock
        self.keep_words: bool = before is not None and before.keep_words
        self.at_wait: Callable[[], None] | None = None if before is None else before.at_wait
        damages = before is not None and before._gso[0].damages
        self._gso: tuple[GsoProbe, ...] = tuple(GsoProbe(damages=damages) for _ in lease.switches)
        """The measurements of the path to each switch."""
        self.running: Collective | None = None
        """The collective that runs now."""
        self._answered: Collective | None = None
        """The last collective in which the switch answered frames."""
        self._kept = KeptRecords(lease, self.slot_rounds, self.round_trip)
        self._trace = opened()
        descriptors = [udp.descriptor for udp in sockets_of(transport)] if self.clock is time.monotonic else []
        self.channel = make_channel(descriptors, plain=not self._gso[0].allowed) if descriptors else None
        """The channel by which a collective uses the transport's socket itself; None where it cannot."""

    def renewed(self, lease: Lease, transport: Transport) -> SwitchPath:
        """Return the path of the job's next epoch."""
        return SwitchPath(lease, transport, total=self.total, clock=self.clock, before=self)

    @property
    def segmentation(self) -> bool:
        """Whether frames leave in runs (GSO), as far as the path has shown that it carries them (paths/gso.py)."""
        return self.channel is not None and self.channel.sends_runs

    def waiting(self) -> WaitingSlot | None:
        running = self.running
        return None if running is None else running.waiting(self.clock())

    def metrics(self) -> dict[str, float]:
        return {
            metrics.WORKER_ROUND_TRIP.name: self.round_trip.smoothed_s,
            metrics.WORKER_TIMEOUT.name: self.round_trip.timeout_s,
            metrics.WORKER_WINDOW.name: self.window.slots,
        }

    def run(self, contribution: Contribution, deadline: Deadline, lost: Lost) -> Collective:
        """Take part in a collective until it is done, and adapt the window to it.

        Raises CollectiveError, and what `lost` returns once it returns an error, after the frames that have arrived
        were read.
        """
        blocks, window, alike, now = contribution.blocks, self.window, contribution.alike, self.clock()
        slots, eager = window.slots_of(alike, self.lease.columns, few=contribution.few), not contribution.few
        records = self._kept.find(alike, blocks.n_blocks, window=window.slots, slots=slots, eager=eager)
        if (call := records.call) is None or records.agreement != contribution.agreement:
            call = contribution.call(slots, window=window.slots)
            records.describe(call, contribution.agreement)
        kept: Collective | None = records.collective
        records.collective = None
        left_s, limit_s, proposal = deadline.left_s(now), deadline.limit_s, window.proposal
        if kept is not None and kept.blocks is blocks and not self.keep_words:
            collective = kept
            collective.begin_again(call, left_s, contribution.number, limit_s, proposal)
        else:
            collective = Collective(
                records,
                blocks,
                call,
                left_s,
                number=contribution.number,
                limit_s=limit_s,
                proposal=proposal,
                keep_words=self.keep_words,
            )
        self._answered, self.running, stats = None, collective, collective.stats
        try:
            if self.channel is None:
                self._send(collective.start(now), stats)
            else:
                collective.begin(now)
                if lost() is None:
                    until = now + min(_LONGEST_WAIT_S, collective.copy())
                    self._send(collective.run(self.channel, until), stats)
            if not collective.done:
                self._wait(collective, now, lost)
        finally:
            self.running = None
            self.total.add(stats)
            counts = stats.counts.tolist()
            if counts[CORRUPT] or counts[MALFORMED]:
                self._saw_damage()
            if self._trace is not None:
                cost = {name: count for name, count in stats.named().items() if count}
                arguments = {"slots": collective.slots, **cost}
                self._trace.span(str(collective.call), now, self.clock(), self.lease, arguments)
        rounds, refused = counts[ROUNDS], bool(collective.refusals)
        limited = slots < window.slots or refused
        grows = not limited and rounds >= 4 * window.slots
        most = self._enough if grows and self.round_trip.queued else self.lease.slot_count
        window.finished(collective.next_window, rounds, counts[LOSSES], limited=limited, most=most)
        if not refused:
            self._answered = collective
            if blocks.n_blocks:
                window.saw(alike, counts[BLOCKS_DOWN], blocks.n_blocks)
                if type(blocks) is Blocks and contribution.key is not None and not self.keep_words:
                    records.collective = collective
        return collective

    def _wait(self, collective: Collective, now: float, lost: Lost) -> None:
        """Take part in a collective that began at `now`, until it is done."""
        waits = Waits(self.lease, self.transport, collective, now, self._trace, self.at_wait)
        try:
            while self.channel is not None and not collective.done and lost() is None:
                if (now := self.clock()) >= collective.deadline:
                    break
                waits.look(now)
                until = now + min(_LONGEST_WAIT_S, collective.copy())
                self._send(collective.run(self.channel, until), collective.stats)
            self._exchange_frames(collective, lost, waits)
        except CollectiveTimeoutError as error:
            raise waits.too_late(error, self.clock()) from None
        finally:
            waits.end(self.clock())

    def _exchange_frames(self, collective: Collective, lost: Lost, waits: Waits) -> None:
        """Take part by datagrams, where there is no channel, and read what has arrived once `lost` is an error."""
        clock, receive, now = self.clock, self.transport.receive, self.clock()
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

    def probe_gso(self) -> None:
        """After a collective, measure whether GSO datagrams arrive, and how long ones, unless that is known."""
        channel, collective = self.channel, self._answered
        self._answered = None
        if channel is None or collective is None or collective.slots < FEWEST_SLOTS:
            return
        if all(gso.known for gso in self._gso):
            return
        for number, (gso, udp) in enumerate(zip(self._gso, sockets_of(self.transport), strict=True)):
            if not gso.known and (answered := collective.answered_frame(number)):
                secret = self.lease.switches[number].secret
                timeout_s = min(_LONGEST_PROBE_S, 2 * self.round_trip.timeout_s)
                gso.probe(udp, self.lease.geometry, secret, answered, timeout_s)
                channel.send_runs(number, gso.longest if gso.allowed else 0)

    def _saw_damage(self) -> None:
        """Stop sending runs, and ask for none, when frames have arrived damaged in several collectives."""
        if self.channel is None:
            return
        ends = [gso.saw_damage() for gso in self._gso]
        for number, gso in enumerate(self._gso):
            if gso.damages:
                self.channel.send_runs(number, 0)
                self.transport.send([Datagram(b"", number)])  # again with each one, as it may be lost
        if any(ends):
            event(
                _log,
                logging.WARNING,
                "segmentation off",
                **of_rank(self.lease),
                cause=f"frames arrived damaged in {DAMAGED_COLLECTIVES} collectives",
            )

    def close_channel(self) -> None:
        """Give the channel's hold on the socket back; only when no collective runs over it."""
        if self.channel is not None:
            self.channel.close()
            self.channel = None

    def close(self, *, idle: bool = True, finished: bool = True) -> None:
        """Give the transport back, and if no collective runs, `close_channel`."""
        if idle and self.running is None:
            self.close_channel()
            self._kept.clear()
        self.transport.close()

    def _send(self, frames: list[bytes], stats: CollectiveStats) -> None:
        if frames:
            stats.frames_up += len(frames)
            stats.bytes_up += sum(map(len, frames)) + ENCAP_BYTES * len(frames)
            self.transport.send(frames)
