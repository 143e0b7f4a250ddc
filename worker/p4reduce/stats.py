"""What collectives have sent, received and repeated: one of them, or all that a communicator has run."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

from p4reduce_contracts.jobs.answers import Usage
from p4reduce_runtime import metrics


def _count(metric: metrics.Metric) -> Any:
    """Declare a count, 0 at first, with the metric that shows it."""
    return field(default=0, metadata={"metric": metric})


@dataclass
class CollectiveStats:
    """Counts of one collective, or of all since the communicator was made.

    Bytes are those on the wire: frame + 42 B of headers.
    """

    collectives: int = _count(metrics.WORKER_COLLECTIVES)
    refused: int = _count(metrics.WORKER_REFUSED)
    """Collectives in which a rank could not take part: none of the ranks got a result."""
    rounds: int = _count(metrics.WORKER_ROUNDS)
    """Rounds finished, summed over slots."""
    frames_up: int = _count(metrics.WORKER_UP_FRAMES)
    bytes_up: int = _count(metrics.WORKER_UP_BYTES)
    frames_down: int = _count(metrics.WORKER_DOWN_FRAMES)
    bytes_down: int = _count(metrics.WORKER_DOWN_BYTES)
    blocks_up: int = _count(metrics.WORKER_UP_BLOCKS)
    """Blocks this rank sent, without retransmissions."""
    blocks_down: int = _count(metrics.WORKER_DOWN_BLOCKS)
    """Summed blocks received: the union of all ranks' blocks."""
    retransmissions: int = _count(metrics.WORKER_REPEATED_FRAMES)
    losses: int = _count(metrics.WORKER_LOST_ROUNDS)
    """Rounds that ended after a retransmission although no PENDING said the switch was waiting."""
    pendings: int = _count(metrics.WORKER_PENDING_FRAMES)
    stale: int = _count(metrics.WORKER_STALE_FRAMES)
    """Frames of another round, ignored."""
    foreign: int = _count(metrics.WORKER_FOREIGN_FRAMES)
    """Frames of another job, epoch, secret or type, ignored."""
    corrupt: int = _count(metrics.WORKER_CORRUPT_FRAMES)
    """RESULTs whose check word was wrong, ignored like lost ones."""
    dense_bytes: int = _count(metrics.WORKER_DENSE_BYTES)
    """Bytes of the tensors that this rank gave: what it would send of all blocks, in the tensors' own types."""
    malformed: int = _count(metrics.WORKER_MALFORMED_FRAMES)
    """Datagrams that are not frames, or RESULTs that contradict what was agreed, ignored."""

    def copy(self) -> CollectiveStats:
        return replace(self)

    def add(self, other: CollectiveStats) -> None:
        counts = vars(self)
        for name, count in vars(other).items():
            counts[name] += count

    def __sub__(self, earlier: CollectiveStats) -> CollectiveStats:
        """Return what happened since `earlier`, a copy taken before."""
        before = vars(earlier)
        return CollectiveStats(**{name: count - before[name] for name, count in vars(self).items()})

    def usage(self) -> Usage:
        """Return what the controller keeps of it."""
        return Usage(self.collectives, self.bytes_up, self.bytes_down, self.retransmissions)

    def as_metrics(self) -> dict[str, float]:
        """Return the counts by the names in `p4reduce_runtime.metrics`."""
        return {one.metadata["metric"].name: getattr(self, one.name) for one in fields(self)}
