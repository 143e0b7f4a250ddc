"""What all ranks do where one refuses a sum because of the numbers in its tensor."""

from __future__ import annotations

import functools
import logging
import operator

from p4reduce.communicator import Communicator
from p4reduce.errors import InvalidTensorError, PeerRefusedError, Reason
from p4reduce_runtime.logs import event

_log = logging.getLogger(__name__)


def all_may_go_on(comm: Communicator, error: InvalidTensorError | PeerRefusedError) -> bool:
    """Return whether NaN, infinity and underflow are all that kept ranks from a sum; the same on every rank.

    `error`: what the sum raised here, or what was wrong with this rank's data before it; the other ranks then
    get it, as by `refuse`. Raises CollectiveError as `refuse` does.
    """
    reasons = error.reasons if isinstance(error, PeerRefusedError) else comm.refuse(error)
    found = functools.reduce(operator.or_, reasons.values())
    if found & ~(Reason.NOT_FINITE | Reason.UNDERFLOW):
        return False
    if Reason.UNDERFLOW in found:
        comm.underflows += 1
        if comm.underflows == 1 and comm.rank == 0:
            cause = 'in fixed point its small numbers would become 0; Options(float_sums="switch") accepts that'
            event(_log, logging.INFO, "sum underflows", job=comm.lease.name, rank=comm.rank, cause=cause)
    return True
