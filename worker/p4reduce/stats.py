"""What collectives have sent, received and repeated: one of them, or all that a communicator has run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from p4reduce_contracts.jobs.answers import Usage
from p4reduce_runtime import metrics

_METRICS: Final[Mapping[str, metrics.Metric]] = {
    "collectives": metrics.WORKER_COLLECTIVES,
    "refused": metrics.WORKER_REFUSED,
    "rounds": metrics.WORKER_ROUNDS,
    "frames_up": metrics.WORKER_UP_FRAMES,
    "bytes_up": metrics.WORKER_UP_BYTES,
    "frames_down": metrics.WORKER_DOWN_FRAMES,
    "bytes_down": metrics.WORKER_DOWN_BYTES,
    "blocks_up": metrics.WORKER_UP_BLOCKS,
    "blocks_down": metrics.WORKER_DOWN_BLOCKS,
    "retransmissions": metrics.WORKER_REPEATED_FRAMES,
    "losses": metrics.WORKER_LOST_ROUNDS,
    "pendings": metrics.WORKER_PENDING_FRAMES,
    "stale": metrics.WORKER_STALE_FRAMES,
    "foreign": metrics.WORKER_FOREIGN_FRAMES,
    "corrupt": metrics.WORKER_CORRUPT_FRAMES,
    "dense_bytes": metrics.WORKER_DENSE_BYTES,
    "malformed": metrics.WORKER_MALFORMED_FRAMES,
}


@dataclass
class CollectiveStats:
    """Counts of one collective, or of all since the communicator was made.

    Bytes are those on the wire: frame + 42 B of headers.
    """

    collectives: int = 0
    refused: int = 0
    """Collectives in which a rank could not take part: none of the ranks got a result."""
    rounds: int = 0
    """Rounds finished, summed over slots."""
    frames_up: int = 0
    bytes_up: int = 0
    frames_down: int = 0
    bytes_down: int = 0
    blocks_up: int = 0
    """Blocks this rank sent, without retransmissions."""
    blocks_down: int = 0
    """Summed blocks received: the union of all ranks' blocks."""
    retransmissions: int = 0
    losses: int = 0
    """Rounds that ended after a retransmission although no PENDING said the switch was waiting."""
    pendings: int = 0
    stale: int = 0
    """Frames of another round, ignored."""
    foreign: int = 0
    """Frames of another job, epoch, secret or type, ignored."""
    corrupt: int = 0
    """RESULTs whose check word was wrong, ignored like lost ones."""
    dense_bytes: int = 0
    """Bytes of the tensors that this rank gave: what it would send of all blocks, in the tensors' own types."""
    malformed: int = 0
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
        return {metric.name: getattr(self, field) for field, metric in _METRICS.items()}
