"""The path of a communicator whose ranks are all on one host, without a switch: all is done in the host's memory."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from p4reduce.collectives import Contribution
from p4reduce.errors import CollectiveError, CollectiveMismatchError
from p4reduce.paths.hosts.layout import HostCollective, HostLayout
from p4reduce.paths.hosts.memory import LOOK_S
from p4reduce.paths.hosts.state import COMPARE, WAITS
from p4reduce.paths.hosts.sums import HostSums
from p4reduce.paths.path import Lost
from p4reduce.paths.waits import LOG_AFTER_S
from p4reduce.protocol.call import Call, compare_calls
from p4reduce.protocol.deadline import Deadline
from p4reduce.stats import COLLECTIVES, CollectiveStats
from p4reduce.trace import TracedWaits, opened
from p4reduce_contracts.jobs.answers import WaitingSlot
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire.calls import Kind

_log = logging.getLogger(__name__)

_LONGEST_LOOK_S: Final = 0.1
"""Seconds between two looks, of a rank that has waited for long, at whether other ranks are alive."""


class MemoryPath:
    """Runs the collectives of a job on one host."""

    in_memory: Final = True
    least_host_bytes: Final = 1

    def __init__(
        self, lease: Lease, sums: HostSums, total: CollectiveStats, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`lease`: names the job and its ranks; its switch is not used. `total`: what each call is counted in."""
        self.lease, self.total, self.clock = lease, total, clock
        self._sums, self._memory = sums, sums.memory
        self._memory.notice_s = 0.0
        self._number = 0
        self.keep_words = False
        self.at_wait: Callable[[], None] | None = None
        self.running = False
        """Whether a collective runs."""
        self._trace = opened()

    def run(self, contribution: Contribution, deadline: Deadline, lost: Lost) -> HostCollective:
        """Take part in a collective until it is done. Raises CollectiveError, and what `lost` returns."""
        sums, memory, blocks = self._sums, self._memory, contribution.blocks
        run: HostLayout | None = blocks.kept
        if type(run) is not HostLayout or run.memory is not memory or run.at is not None or memory.has_arrays:
            run = sums.layout(blocks)
        if run is None:
            raise CollectiveError(
                f"{contribution.call(limit_s=deadline.limit_s)}: a host's memory has no room for it: split the tensor"
            )
        self._number += 1
        self.total.counts[COLLECTIVES] += 1
        self.running = True
        try:
            event = run.run(*run.begin(sums.number + 1, self._number, contribution.number, contribution.compared))
            if event == WAITS or self._trace is not None:
                event = self._wait(run, event, contribution, deadline, lost)
            if event == COMPARE or contribution.kind is Kind.REFUSED:  # by all ranks, with one reason: calls are equal
                return self._compared(contribution, deadline)
            sums.number += run.n_blocks > 0
        except BaseException:
            sums.number += run.has_summed
            raise
        finally:
            self.running = False
        if memory.detached and (failure := lost()) is not None:  # another thread has closed the communicator
            raise failure.with_traceback(None)
        return run.collective(partial(contribution.call, limit_s=deadline.limit_s))

    def _wait(self, run: HostLayout, event: int, contribution: Contribution, deadline: Deadline, lost: Lost) -> int:
        """Go on with a collective whose other ranks are waited for, and log and trace that."""
        call, log_after_s = contribution.call(limit_s=deadline.limit_s), LOG_AFTER_S
        begun = min(self.clock(), deadline.at - deadline.limit_s)
        waits = None if self._trace is None else TracedWaits(self._trace, self.lease)
        left_s = deadline.left_s(begun)
        until, look_s = time.monotonic() + left_s, LOOK_S
        try:
            while event == WAITS:
                now = self.clock()
                if waits is not None:
                    waits.look(self._memory.missing(self._number), now)
                if now - begun >= log_after_s:
                    log_after_s *= 2
                    self._say(call, now - begun)
                if run.has_summed:
                    self._memory.look(len(self._memory.ranks), self._sums.number + 1, until, lost, call)
                else:
                    self._memory.look_for_calls(self._number, until, lost, call, left_s)
                event = run.go_on(max(0.0, min(look_s, until - time.monotonic())))
                look_s = min(2 * look_s, _LONGEST_LOOK_S)
        finally:
            if waits is not None and self._trace is not None:
                waits.look((), self.clock())
                self._trace.span(str(call), begun, self.clock(), self.lease, {})
        return event

    def _compared(self, contribution: Contribution, deadline: Deadline) -> HostCollective:
        """Return a collective that ranks have refused. Raises CollectiveMismatchError where none did."""
        call = contribution.call(limit_s=deadline.limit_s)
        try:
            refusals, _ = compare_calls(self._memory.calls(self._number))
        except CollectiveMismatchError as error:
            raise CollectiveMismatchError(error.calls, call.layout) from None
        self.total.refused += 1
        return HostCollective(lambda: call, refusals=refusals)

    def waiting(self) -> WaitingSlot | None:
        """Return None: no slot of a switch is waited for."""
        return None

    def metrics(self) -> dict[str, float]:
        """Return nothing: no network is measured."""
        return {}

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
