"""The heartbeat: keeps a rank a member of its job, and detects when the membership has ended."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import weakref
from typing import TYPE_CHECKING, Final

from p4reduce.communicator import Communicator
from p4reduce.epoch import of_rank
from p4reduce.errors import CollectiveError, ControllerLostError, JobResetError
from p4reduce.stats import CollectiveStats
from p4reduce_contracts.jobs.answers import Usage
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.jobs.reasons import is_normal_end
from p4reduce_runtime.logs import event
from p4reduce_runtime.threads import DaemonThread

if TYPE_CHECKING:
    from p4reduce_contracts.jobs.client import JobClient
    from p4reduce_contracts.jobs.watch import Watch

_log = logging.getLogger(__name__)

LEAVE_TIMEOUT_S: Final = 1.0
"""Seconds that leaving waits for the controller: it notices anyway, when the heartbeats stop."""
_AGAIN_S: Final = 0.5
"""Seconds until a failed heartbeat is tried again: the controller may be there for a few seconds only."""


class Heartbeat:
    """Renews a membership on a thread, and detects its end."""

    def __init__(
        self, client: JobClient, nonce: int, lease: Lease, watch: Watch, before: Heartbeat | None = None
    ) -> None:
        """`watch`: this membership's. `before`: the heartbeat of this rank in the epoch before, if there was one."""
        self._client = client
        self.nonce = nonce
        """The nonce with which this rank joined."""
        self._lease = lease
        self.reported: CollectiveStats = CollectiveStats() if before is None else before.reported
        """The communicator's counts that the controller has received."""
        self._before = self.reported
        self._stop = threading.Event()
        self._answered = time.monotonic()
        self._failure: CollectiveError | None = None
        self._communicator: weakref.ref[Communicator] | None = None if before is None else before._communicator
        self._watch = watch
        watch.attach(self._reset)
        self._thread = DaemonThread(self._beat, f"p4reduce-heartbeat-{lease.rank}")
        self._thread.start()

    def failure(self) -> CollectiveError | None:
        """Return JobResetError or ControllerLostError, once the membership is void."""
        return self._failure

    def attach(self, communicator: Communicator) -> None:
        """Report what this communicator waits for in each heartbeat, also of later epochs. The reference is weak."""
        self._communicator = weakref.ref(communicator)

    def leave(self, *, finished: bool = False) -> None:
        """Stop the heartbeat and leave the job; a controller that does not answer soon is no error.

        `finished`: all ranks have agreed on the end of the job.
        """
        if self._stop.is_set():
            return
        self._stop.set()
        event(_log, logging.INFO, "job left", **of_rank(self._lease))
        self._client.timeout_s = min(self._client.timeout_s, LEAVE_TIMEOUT_S)
        with contextlib.suppress(Exception):
            self._client.leave(self.nonce, usage=self._usage()[1], finished=finished)
        self._end()

    def abandon(self) -> None:
        """Stop the heartbeat of a membership that is void, without a call to the controller."""
        if not self._stop.is_set():
            self._stop.set()
            self._end()

    def _end(self) -> None:
        self._client.close()  # ends a heartbeat that still waits for its answer, and the watch
        self._watch.close()
        self._thread.join(LEAVE_TIMEOUT_S)

    def leave_at_once(self, timeout_s: float) -> None:
        """Leave the job without waiting for the threads, for a process that ends now."""
        with contextlib.suppress(Exception):
            self._client.leave(self.nonce, timeout_s, usage=self._usage()[1])

    def _reset(self, reason: str) -> None:
        if self._failure is None and not self._stop.is_set():
            self._failure = JobResetError(reason)
            what = "job finished" if is_normal_end(reason) else "job reset"
            event(_log, logging.INFO, what, **of_rank(self._lease), cause=reason)

    def _usage(self) -> tuple[CollectiveStats, Usage]:
        """Return what the communicator has counted so far, and of that what it did in this membership."""
        comm = None if self._communicator is None else self._communicator()
        counted = self.reported if comm is None else comm.stats.copy()
        return counted, (counted - self._before).usage()

    def _beat(self) -> None:
        from p4reduce_contracts.jobs.errors import JobServiceError, MemberResetError, UnknownJobError

        pause_s = interval_s = self._lease.heartbeat_interval_s
        while self._failure is None and not self._stop.wait(pause_s):
            try:
                pause_s = min(_AGAIN_S, interval_s)
                comm = None if self._communicator is None else self._communicator()
                counted, usage = self._usage()
                reason = self._client.heartbeat(self.nonce, None if comm is None else comm.waiting(), usage)
                del comm
                self.reported = counted
                self._answered, pause_s = time.monotonic(), interval_s
                if reason is not None:
                    self._reset(reason)
            except (MemberResetError, UnknownJobError) as error:
                self._reset(str(error))
            except Exception as error:
                silent = time.monotonic() - self._answered
                if silent >= self._lease.dead_after_s:
                    self._failure = ControllerLostError(f"no heartbeat was answered for {silent:.0f} s ({error})")
                    event(_log, logging.WARNING, "controller lost", **of_rank(self._lease), cause=str(self._failure))
                if not isinstance(error, JobServiceError):
                    raise
