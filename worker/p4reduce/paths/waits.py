"""Log lines of a collective that makes no progress: for how long, and what it waits for.

The first one comes when no round has ended for 10 s, the next ones after 20 s, 40 s and so on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from p4reduce.errors import CollectiveTimeoutError
from p4reduce.protocol.collective import Collective
from p4reduce.protocol.deadline import IP_UDP_BYTES, links_above, name_switches
from p4reduce.trace import TracedWaits, TraceFile
from p4reduce.transport import Transport, sockets_of
from p4reduce_contracts.jobs.lease import Lease

_log = logging.getLogger(__name__)

LOG_AFTER_S: Final = 10.0
_SILENT_S: Final = 10.0
"""Seconds without an answer, with frames repeated every second, after which the switch or the path to it has failed."""


class Waits:
    """Measures how long one collective has waited. `look` is called at least every tenth of a second."""

    def __init__(
        self,
        lease: Lease,
        transport: Transport,
        collective: Collective,
        now: float,
        trace: TraceFile | None = None,
        at_wait: Callable[[], None] | None = None,
    ) -> None:
        """`now`: when it began. `at_wait`: called with each line."""
        self._trace = None if trace is None else TracedWaits(trace, lease)
        self._at_wait = at_wait
        self._lease, self._transport, self._collective = lease, transport, collective
        self._rounds = self._answers = 0
        self._went_on_at = self._answered_at = now
        self._log_after_s = LOG_AFTER_S

    def look(self, now: float) -> None:
        """Log what is waited for, when that is due."""
        if self._collective.done:
            return
        self._note(now)
        if self._trace is not None:
            self._trace.look(() if self._went_on_at == now else self._collective.obstacle().missing_ranks, now)
        waited_s = now - self._went_on_at
        if waited_s < self._log_after_s:
            return
        self._log_after_s *= 2
        if self._at_wait is not None:
            self._at_wait()
        obstacle = self._collective.obstacle()
        _log.warning(
            "rank %d of job %s has waited %.0f s in %s: %s%s",
            self._lease.rank,
            self._lease.name,
            waited_s,
            self._collective.call,
            obstacle.text,
            self._remarks(obstacle.missing_ranks, now),
        )

    def end(self, now: float) -> None:
        """Write the waits of a collective that has ended to the trace."""
        if self._trace is not None:
            self._trace.look((), now)

    def too_late(self, error: CollectiveTimeoutError, now: float) -> CollectiveTimeoutError:
        """Return the error of a collective that missed its deadline, with what is known of the path."""
        self._note(now)
        return CollectiveTimeoutError(f"{error}{self._remarks(error.missing_ranks, now)}", error.missing_ranks)

    def _note(self, now: float) -> None:
        if (rounds := self._collective.stats.rounds) != self._rounds:
            self._rounds, self._went_on_at, self._log_after_s = rounds, now, LOG_AFTER_S
        if (answers := self._count_answers()) != self._answers:
            self._answers, self._answered_at = answers, now

    def _remarks(self, missing_ranks: Sequence[int], now: float) -> str:
        """Return text to append: that the switch does not answer, or that full frames exceed the path's MTU."""
        text, silent_s = "", now - self._answered_at
        if self._answers and silent_s >= _SILENT_S:
            where = name_switches(self._lease, range(len(self._lease.switches)))
            links = links_above(self._lease) if missing_ranks else ""  # they may have contributed since
            text = f"; the last answer of {where} came {silent_s:.0f} s ago{links and ': see ' + links}"
        if text or not missing_ranks:
            text += self._mtu()
        return text

    def _mtu(self) -> str:
        needed = self._lease.geometry.max_frame_bytes + IP_UDP_BYTES
        try:
            mtu = min((udp.path_mtu for udp in sockets_of(self._transport)), default=needed)
        except OSError:  # it was closed meanwhile
            return ""
        return (
            f"; the path's MTU is {mtu} bytes, and a full frame takes a packet of {needed} bytes"
            if mtu < needed
            else ""
        )

    def _count_answers(self) -> int:
        return self._collective.stats.rounds + self._collective.stats.pendings
