"""A rank's membership of an epoch of its job."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from p4reduce.errors import CollectiveError
from p4reduce.transport import Transport
from p4reduce_contracts.jobs.lease import Lease


class Membership(Protocol):
    """The controller's view of this rank (membership/heartbeat.py)."""

    def failure(self) -> CollectiveError | None:
        """Return why the job can no longer be used; None while it can."""
        ...

    def leave(self, *, finished: bool = False) -> None:
        """Leave the job; does not raise. `finished`: all ranks have agreed on its end."""
        ...


class EpochMembership(NamedTuple):
    """The lease, transport and membership of a rank in one epoch of its job."""

    lease: Lease
    transport: Transport
    membership: Membership | None

    def release(self, *, finished: bool = False) -> None:
        """Leave the epoch and close the transport; `finished` as in `leave`."""
        self.transport.close()
        if self.membership is not None:
            self.membership.leave(finished=finished)


def of_rank(lease: Lease) -> dict[str, str | int]:
    """Return the fields of a log event that say of which rank of which job it is."""
    return {"job": lease.name, "rank": lease.rank}
