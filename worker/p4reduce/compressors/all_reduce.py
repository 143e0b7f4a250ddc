"""One bucket over a communicator: runs the collectives that `exchange` yields, and reports their cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from p4reduce.communicator import Communicator
from p4reduce.compressors import over_hosts
from p4reduce.compressors.exchange import NO_BEGINS, Gradients, Outcome, complete, exchange
from p4reduce.compressors.interface import Compressor
from p4reduce.compressors.messages import Form
from p4reduce.errors import InvalidTensorError


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
    """A bucket that is compressed and not sent yet; where ranks share hosts, it is compressed once all have it.

    It changed no state, so it may be dropped.
    """

    comm: Communicator
    run: Callable[[], Outcome]

    def finish(self) -> tuple[Outcome, BucketReport]:
        """Take part in the collectives of the bucket; errors as in `all_reduce_compressed`."""
        stats = self.comm.stats
        down, up, dense = stats.bytes_down, stats.bytes_up, stats.dense_bytes
        outcome = self.run()
        stats.dense_bytes = dense + sum(mean.nbytes for mean in outcome.means.values())
        return outcome, BucketReport(outcome.forms, stats.bytes_down - down, stats.bytes_up - up)


def all_reduce_compressed(
    comm: Communicator, compressor: Compressor, gradients: Gradients
) -> tuple[Outcome, BucketReport]:
    """Exchange a bucket's gradients: see `exchange`.

    Raises InvalidTensorError for gradients that cannot be summed, after a refusal to the other ranks, and
    PeerRefusedError for another rank's. Raises CollectiveError as every collective does. The compressor is then as it
    was before; after a CollectiveError other ranks may have finished the step, so all go on from a checkpoint.
    """
    try:
        return begin(comm, compressor, gradients).finish()
    except InvalidTensorError as error:
        comm.refuse(error)  # in most cases no collective has begun: the others must not wait for this rank
        raise


def begin(
    comm: Communicator,
    compressor: Compressor,
    gradients: Gradients,
    *,
    checked: bool = False,
    begins: Mapping[str, int] | None = None,
    size: int | None = None,
    timeout_s: float | None = None,
) -> Begun:
    """Compress a bucket's gradients, up to its first collective; changes nothing.

    May run while another bucket, of other parameters, is sent, once the hosts are found (`Communicator.find_hosts`,
    which has `size`). `checked`: the caller has checked what `exchange` would refuse. `begins`: as of `exchange`; parts
    of parameters are not summed over hosts. `timeout_s`: the limit of each collective.
    """
    if begins is None and (hosts := comm.find_hosts(timeout_s, size)) is not None:
        return Begun(
            comm, partial(over_hosts.exchange, comm, hosts, compressor, gradients, checked=checked, timeout_s=timeout_s)
        )
    steps = exchange(compressor, gradients, comm.lease, checked=checked, begins=begins or NO_BEGINS)
    return Begun(comm, partial(complete, steps, next(steps), partial(comm.all_reduce_segments, timeout_s=timeout_s)))
