"""The summary of a job, which rank 0 logs at its end."""

from __future__ import annotations

import logging
from typing import Final

from p4reduce.communicator import Communicator
from p4reduce_runtime.logs import event

SUMMARY_VARIABLE: Final = "P4REDUCE_SUMMARY"

_log = logging.getLogger(__name__)


def log_summary(comm: Communicator) -> None:
    """Log on rank 0 what a communicator has done, if it has done anything."""
    counted = comm.stats
    if comm.rank or not counted.collectives:
        return
    event(
        _log,
        logging.INFO,
        "job summary",
        job=comm.lease.name,
        over_p4reduce=counted.collectives,
        over_gloo=comm.count_over_gloo(),
        underflows=comm.underflows,
        sent_bytes=counted.bytes_up,
        saved_bytes=counted.dense_bytes - counted.bytes_up,
        collective_s=round(comm.collective_s, 3),
    )
