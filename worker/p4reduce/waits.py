"""The log lines of a collective that does not go on: for how long, and what it waits for.

The first one comes when no round has ended for 10 s, the next ones after 20 s, 40 s and so on.
"""

from __future__ import annotations

import logging
from typing import Final

from p4reduce.protocol.collective import AnyCollective
from p4reduce_contracts.jobs.lease import Lease

_log = logging.getLogger(__name__)

LOG_AFTER_S: Final = 10.0
_SILENT_S: Final = 10.0
"""Frames without an answer are repeated every second: after so long the switch, or the path to it, is gone."""


class Waits:
    """How long one collective has waited. Nothing is locked; `look` is called at least every tenth of a second."""

    def __init__(self, lease: Lease, collective: AnyCollective, now: float) -> None:
        self._lease, self._collective = lease, collective
        self._rounds = collective.stats.rounds
        self._answers = self._count_answers()
        self._went_on_at = self._answered_at = now
        self._log_after_s = LOG_AFTER_S

    def look(self, now: float) -> None:
        """Log what is waited for, when that is due."""
        if self._collective.done:
            return
        if (rounds := self._collective.stats.rounds) != self._rounds:
            self._rounds, self._went_on_at, self._log_after_s = rounds, now, LOG_AFTER_S
        if (answers := self._count_answers()) != self._answers:
            self._answers, self._answered_at = answers, now
        waited_s = now - self._went_on_at
        if waited_s < self._log_after_s:
            return
        self._log_after_s *= 2
        _log.warning(
            "rank %d of job %s has waited %.0f s in %s: %s%s",
            self._lease.rank,
            self._lease.name,
            waited_s,
            self._collective.call,
            self._collective.obstacle().text,
            self._silence(now),
        )

    def _silence(self, now: float) -> str:
        """Return what to add where the switch answered before, and no longer does."""
        silent_s = now - self._answered_at
        if not self._answers or silent_s < _SILENT_S:
            return ""
        where = f"{self._lease.switch_host}:{self._lease.switch_port}"
        return f"; the last answer of the switch at {where} came {silent_s:.0f} s ago"

    def _count_answers(self) -> int:
        return self._collective.stats.rounds + self._collective.stats.pendings
