"""The path of a communicator whose ranks are all on one host, without a switch: calls are compared in its memory."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from p4reduce.collectives import Contribution
from p4reduce.errors import CollectiveError, CollectiveMismatchError, P4ReduceError
from p4reduce.paths.hosts.sums import HostCollective, HostSums
from p4reduce.paths.path import Lost
from p4reduce.paths.waits import LOG_AFTER_S
from p4reduce.protocol.call import Call, compare_calls
from p4reduce.protocol.deadline import Deadline
from p4reduce.stats import CollectiveStats
from p4reduce.trace import TracedWaits, opened
from p4reduce_contracts.jobs.answers import WaitingSlot
from p4reduce_contracts.jobs.lease import Lease

_log = logging.getLogger(__name__)


class HostCalls:
    """Runs the collectives without blocks of a job on one host; those with blocks are sums (path.py)."""

    least_host_bytes: Final = 1

    def __init__(
        self, lease: Lease, sums: HostSums, total: CollectiveStats, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`lease`: names the job and its ranks; its switch is not used. `total`: what each call is counted in."""
        self.lease, self.total, self.clock = lease, total, clock
        self._sums, self._memory = sums, sums.memory
        self._number = 0
        self.keep_words = False
        self.at_wait: Callable[[], None] | None = None
        """A function that is called with each log line of a call that waits."""
        self.running: Call | None = None
        """The call for which the others are waited for."""
        self._trace = opened()
        self._traced: tuple[Call, float] | None = None
        """The collective that the trace has not yet, and when it began."""

    def run(self, contribution: Contribution, deadline: Deadline, lost: Lost) -> HostCollective:
        """Return once all ranks have called the same. Raises CollectiveError, and what `lost` returns."""
        call, begun = contribution.call(limit_s=deadline.limit_s), self.clock()
        if contribution.blocks.n_blocks:
            raise CollectiveError(f"{call}: a host's memory has no room for it: split the tensor")
        log_after_s, self.running = LOG_AFTER_S, call
        waits = None if self._trace is None else TracedWaits(self._trace, self.lease)
        self._number += 1
        self._traced = call, begun

        def look() -> P4ReduceError | None:
            nonlocal log_after_s
            now = self.clock()
            if waits is not None:
                waits.look(self._memory.missing(self._number), now)
            if now - begun >= log_after_s:
                log_after_s *= 2
                self._say(call, now - begun)
            return lost()

        try:
            if contribution.blocks.copy is not None:
                contribution.blocks.copy(None)
            self._memory.set_call(self._sums.place, self._number, call.words(0))
            calls = self._memory.calls(self._number, deadline.left_s(begun), look, call)
            refusals, _ = compare_calls(calls)
        except CollectiveMismatchError as error:
            raise CollectiveMismatchError(error.calls, call.layout) from None
        finally:
            self.running = None
            self.total.collectives += 1
            if waits is not None:
                waits.look((), self.clock())
        if refusals:
            self.total.refused += 1
        return HostCollective(call, refusals=refusals)

    def waiting(self) -> WaitingSlot | None:
        """Return None: no slot of a switch is waited for."""
        return None

    def metrics(self) -> dict[str, float]:
        """Return nothing: no network is measured."""
        return {}

    def settle(self) -> None:
        """Write the collective to the trace, with the time of the sum in the memory that followed the calls."""
        if self._trace is not None and self._traced is not None:
            call, begun = self._traced
            self._trace.span(str(call), begun, self.clock(), self.lease, {})
        self._traced = None

    def close(self, *, idle: bool = True, finished: bool = True) -> None:
        """Tell the other ranks, unless all have `finished`, that this one calls nothing more."""
        if not finished:
            self._sums.set_failed()

    def _say(self, call: Call, waited_s: float) -> None:
        if self.at_wait is not None:
            self.at_wait()
        missing, lease = ", ".join(map(str, self._memory.missing(self._number))), self.lease
        text = "rank %d of job %s has waited %.0f s in %s: rank %s of this host did not call it"
        _log.warning(text, lease.rank, lease.name, waited_s, call, missing)
