"""One bucket over a communicator: runs the collectives that `exchange` yields, and reports their cost."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

from p4reduce.communicator import Communicator
from p4reduce.compressors import over_hosts
from p4reduce.compressors.exchange import NO_BEGINS, Gradients, Outcome, Request, complete, exchange
from p4reduce.compressors.interface import Compressor
from p4reduce.compressors.messages import Form
from p4reduce.errors import InvalidTensorError
from p4reduce.paths.hosts.sums import HostSums
from p4reduce.stats import CollectiveStats
from p4reduce_contracts.jobs.lease import Lease


@dataclass(frozen=True)
class BucketReport:
    """The wire forms of a bucket, and its bytes."""

    forms: dict[str, Form]
    """The wire form of each compressed parameter, equal on all ranks; the other parameters were dense. Where ranks
    share hosts, of this rank's shard."""
    bytes_down: int
    bytes_up: int


@dataclass(frozen=True)
class Begun:
    """A bucket that is compressed and not sent yet. It changed no state, so it may be dropped."""

    steps: Generator[Request, list[Any], Outcome]
    request: Request
    """The first collective to take part in."""


def all_reduce_compressed(
    comm: Communicator, compressor: Compressor, gradients: Gradients
) -> tuple[Outcome, BucketReport]:
    """Exchange a bucket's gradients: see `exchange`.

    Raises InvalidTensorError for gradients that cannot be summed, after a refusal to the other ranks, and
    PeerRefusedError for another rank's. Raises CollectiveError as every collective does. The compressor is then as it
    was before; after a CollectiveError other ranks may have finished the step, so all go on from a checkpoint.
    """
    try:
        if (hosts := comm.find_hosts()) is not None:
            return finish_over_hosts(comm, hosts, compressor, gradients)
        return finish(comm, begin(compressor, gradients, comm.lease))
    except InvalidTensorError as error:
        comm.refuse(error)  # in most cases no collective has begun: the others must not wait for this rank
        raise


def begin(
    compressor: Compressor,
    gradients: Gradients,
    group: Lease,
    *,
    checked: bool = False,
    begins: Mapping[str, int] = NO_BEGINS,
) -> Begun:
    """Compress a bucket's gradients, up to its first collective; changes nothing.

    May run while another bucket, of other parameters, is sent. `checked`: the caller has checked what `exchange` would
    refuse. `begins`: as of `exchange`.
    """
    steps = exchange(compressor, gradients, group, checked=checked, begins=begins)
    return Begun(steps, next(steps))


def finish(comm: Communicator, begun: Begun, *, timeout_s: float | None = None) -> tuple[Outcome, BucketReport]:
    """Take part in the collectives of a bucket; errors as in `all_reduce_compressed`. `timeout_s`: each one's limit."""
    before = comm.stats.copy()

    def answer(request: Request) -> list[Any]:
        return comm.all_reduce_segments(
            request.segments, timeout_s=timeout_s, name=request.name, agreement=request.agreement
        )

    return _reported(comm, before, complete(begun.steps, begun.request, answer))


def finish_over_hosts(
    comm: Communicator,
    hosts: HostSums,
    compressor: Compressor,
    gradients: Gradients,
    *,
    checked: bool = False,
    timeout_s: float | None = None,
) -> tuple[Outcome, BucketReport]:
    """Exchange a bucket where ranks share hosts; errors and `timeout_s` as of `finish`, `checked` as of `begin`."""
    before = comm.stats.copy()
    outcome = over_hosts.exchange(comm, hosts, compressor, gradients, checked=checked, timeout_s=timeout_s)
    return _reported(comm, before, outcome)


def _reported(comm: Communicator, before: CollectiveStats, outcome: Outcome) -> tuple[Outcome, BucketReport]:
    spent = comm.stats - before
    comm.stats.dense_bytes += sum(mean.nbytes for mean in outcome.means.values()) - spent.dense_bytes
    return outcome, BucketReport(outcome.forms, spent.bytes_down, spent.bytes_up)
