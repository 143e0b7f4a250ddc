"""What ends a communicator: its first error, the loss of its membership, or `close`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Protocol

from p4reduce.epoch import Membership, of_rank
from p4reduce.errors import CollectiveError, CommunicatorClosedError, P4ReduceError
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_runtime.logs import event

_log = logging.getLogger(__name__)


class Recovery(Protocol):
    """A way to join a job again after a reset (membership/rejoin.py)."""

    def can_recover_from(self, error: P4ReduceError) -> bool:
        """Return whether all ranks can join again after this error."""
        ...

    def finish(self, communicator: Any, contribution: Any, limit: Any) -> Any:
        """Take part in a collective, in this epoch or a later one; return what is finished (paths/path.py)."""
        ...

    def cancel(self) -> None:
        """End a `finish` that waits for the other ranks."""
        ...


class Failure:
    """The error of a communicator that cannot be used any more, if it cannot. For all threads."""

    def __init__(self, lease: Lease, membership: Membership | None) -> None:
        self.membership = membership
        self.recovery: Recovery | None = None
        """The way to join the job again after a reset; None: the first JobResetError ends the communicator."""
        self.error: P4ReduceError | None = None
        """The first error without recovery, if there is one, else the last one; CommunicatorClosedError in any case
        once the communicator is closed."""
        self.closing = threading.Lock()
        """The lock of `close`: while it is held, no error is logged."""
        self._lease = lease
        self._lock = threading.Lock()

    def lost(self) -> P4ReduceError | None:
        """Return the error, also one that can be recovered from."""
        if self.error is None and self.membership is not None:
            lost = self.membership.failure()
            if lost is not None:
                self.fail(lost)
        return self.error

    def check(self) -> None:
        """Raise what `lost` returns."""
        failure = self.lost()
        if failure is not None:
            raise failure.with_traceback(None)

    def check_final(self) -> None:
        """Raise what `lost` returns, unless it can be recovered from."""
        failure = self.lost()
        if failure is not None and not self.recovers(failure):
            raise failure.with_traceback(None)

    def fail(self, error: P4ReduceError) -> None:
        """Make the communicator unusable. The first error without recovery stays; that of `close` is not logged."""
        with self._lock:
            before = self.error
            new = before is None or before is not error and self.recovers(before)
            if new or isinstance(error, CommunicatorClosedError):
                self.error = error
        if new and not self.closing.locked() and not self.recovers(error):
            event(
                _log,
                logging.WARNING,
                "communicator failed",
                **of_rank(self._lease),
                error=type(error).__name__,
                cause=str(error),
            )

    def fail_of(self, error: BaseException, what: str, tell: Callable[[], None] | None = None) -> None:
        """End the communicator after an error in `what`: the ranks may be at different collectives now.

        `tell`: tells the other ranks of this host, with which a sum was running, unless all ranks can recover.
        """
        known = error if isinstance(error, P4ReduceError) else None
        self.fail(known or CollectiveError(f"{what} was interrupted by {type(error).__name__}; join again"))
        if tell is not None and (known is None or not self.recovers(known)):
            tell()

    def leave(self, *, finished: bool) -> None:
        """End the communicator because it is closed, and its membership; `finished` as in `Membership.leave`."""
        self.fail(CommunicatorClosedError("this communicator was closed; join the job again"))
        if self.recovery is not None:
            self.recovery.cancel()
        if self.membership is not None:
            self.membership.leave(finished=finished)

    def renew(self, membership: Membership | None, begin: Callable[[], None]) -> None:
        """Call `begin`, and go on with the membership of another epoch. Raises CommunicatorClosedError once closed."""
        with self._lock:
            if isinstance(self.error, CommunicatorClosedError):
                raise self.error.with_traceback(None)
            begin()
            self.membership = membership
            self.error = None  # last: a reader that sees no failure asks the new membership for one

    def recovers(self, error: P4ReduceError) -> bool:
        """Return whether all ranks can join again after this error, and go on."""
        return self.recovery is not None and self.recovery.can_recover_from(error)
