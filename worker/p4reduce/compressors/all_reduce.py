"""One bucket over a communicator: runs the collectives that `exchange` yields, and reports their cost."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from p4reduce.communicator import Communicator
from p4reduce.compressors.exchange import Gradients, Outcome, Request, exchange
from p4reduce.compressors.forms import Form
from p4reduce.compressors.interface import Compressor
from p4reduce.errors import InvalidTensorError
from p4reduce.group import Group, group_of


@dataclass(frozen=True)
class BucketReport:
    """How a bucket was sent."""

    forms: dict[str, Form]
    """The wire form of each compressed parameter, equal on all ranks; the other parameters were dense."""
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
        return finish(comm, begin(compressor, gradients, group_of(comm.lease)))
    except (
        InvalidTensorError
    ) as error:  # found before any collective, in most cases: the others must not wait for this rank
        comm.refuse(error)
        raise


def begin(compressor: Compressor, gradients: Gradients, group: Group, *, checked: bool = False) -> Begun:
    """Compress a bucket's gradients, up to its first collective; changes nothing.

    May run while another bucket, of other parameters, is sent. `checked`: the caller has checked what `exchange` would
    refuse.
    """
    steps = exchange(compressor, gradients, group, checked=checked)
    return Begun(steps, next(steps))


def finish(comm: Communicator, begun: Begun, *, timeout_s: float | None = None) -> tuple[Outcome, BucketReport]:
    """Take part in the collectives of a bucket; errors as in `all_reduce_compressed`. `timeout_s`: of each of them."""
    before = comm.stats.copy()
    request = begun.request
    try:
        while True:
            results = comm.all_reduce_segments(
                request.segments, timeout_s=timeout_s, name=request.name, agreement=request.agreement
            )
            request = begun.steps.send(results)
    except StopIteration as finished:
        outcome: Outcome = finished.value
    spent = comm.stats - before
    return outcome, BucketReport(outcome.forms, spent.bytes_down, spent.bytes_up)
