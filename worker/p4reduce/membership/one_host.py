"""The communicator of ranks that are all on one host: it needs no switch, controller or job, but their memory."""

from __future__ import annotations

import os

from p4reduce.communicator import Communicator
from p4reduce.errors import JoinError
from p4reduce.membership.join import close_at_exit, load_all_kernels, log_summary
from p4reduce.membership.rank_metrics import RankMetrics, address_of
from p4reduce.paths.hosts.find import Gather, Hosts, why_alone
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire.geometry import DEFAULT
from p4reduce_runtime.environment import P4REDUCE_INSECURE, P4REDUCE_SUMMARY
from p4reduce_runtime.settings import ConfigError


def share_memory(name: str, rank: int, world_size: int, gather: Gather, timeout_s: float) -> Communicator | str:
    """Return this rank's communicator, or why they cannot all share memory; all ranks call it, with one `name`.

    `gather` gives what a rank says to all of them. `timeout_s`: of finding each other, and of each collective. Blocks
    are those of the switch's default pipeline, so that sums have the same bits. Raises JoinError.
    """
    try:
        alone, summary = why_alone(os.environ), P4REDUCE_SUMMARY.read()
        insecure, metrics = P4REDUCE_INSECURE.read(), address_of(None, os.environ)
    except ConfigError as error:
        raise JoinError(str(error)) from error
    load_all_kernels()
    lease = Lease(0, name, 0, rank, world_size, 1, DEFAULT.columns, DEFAULT.block_words)
    hosts = Hosts(None, alone=alone)
    hosts.find(lease, gather, timeout_s)
    if hosts.sums is None:
        return hosts.problem
    comm = Communicator(lease, None, hosts=hosts, timeout_s=timeout_s)
    if summary:
        comm.at_close.append(log_summary)
    close_at_exit(comm)
    if metrics is not None:
        RankMetrics(metrics, insecure=insecure).attach(comm)
    return comm
