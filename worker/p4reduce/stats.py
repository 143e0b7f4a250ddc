"""What collectives have sent, received and repeated: one of them, or all that a communicator has run."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from p4reduce_contracts.jobs.answers import Usage
from p4reduce_runtime import metrics
from p4reduce_runtime.records import Record, zeros


class _Count:
    """A count, and the metric that shows it: an attribute of CollectiveStats that is a field of its record."""

    def __init__(self, metric: metrics.Metric) -> None:
        self.metric = metric

    def __set_name__(self, owner: type, name: str) -> None:
        self._place = list(owner.__annotations__).index(name)

    def __get__(self, stats: CollectiveStats, _: type) -> int:
        return int(stats.counts[self._place])

    def __set__(self, stats: CollectiveStats, count: int) -> None:
        stats.counts[self._place] = count


_count: Any = _Count


class CollectiveStats(Record):
    """Counts of one collective, or of all since the communicator was made.

    Kernels count in the record; other threads may read a communicator's counts at any time: they are added to all at
    once. Bytes are those on the wire: frame + 42 B of headers.
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

    def __init__(self, **counts: int) -> None:
        self.table = zeros(CollectiveStats)
        """The record, as a table of one, for kernels."""
        self.counts = self.table.view(np.int64)
        """All counts, in the order of their declarations."""
        for name, count in counts.items():
            setattr(self, name, count)

    def named(self) -> dict[str, int]:
        """Return the counts by name."""
        return dict(zip(CollectiveStats.__annotations__, self.counts.tolist(), strict=True))

    def copy(self) -> CollectiveStats:
        copied = CollectiveStats()
        copied.counts[:] = self.counts
        return copied

    def add(self, other: CollectiveStats) -> None:
        self.counts += other.counts

    def __sub__(self, earlier: CollectiveStats) -> CollectiveStats:
        """Return what happened since `earlier`, a copy taken before."""
        spent = self.copy()
        spent.counts -= earlier.counts
        return spent

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CollectiveStats) and bool((self.counts == other.counts).all())

    def usage(self) -> Usage:
        """Return what the controller keeps of it."""
        return Usage(self.collectives, self.bytes_up, self.bytes_down, self.retransmissions)

    def as_metrics(self) -> dict[str, float]:
        """Return the counts by the names in `p4reduce_runtime.metrics`."""
        return {vars(CollectiveStats)[name].metric.name: count for name, count in self.named().items()}


_NAMES: Final = [*CollectiveStats.__annotations__]
COLLECTIVES, ROUNDS, BLOCKS_DOWN, LOSSES, CORRUPT, DENSE_BYTES, MALFORMED = map(
    _NAMES.index, ("collectives", "rounds", "blocks_down", "losses", "corrupt", "dense_bytes", "malformed")
)
"""Places of these in `counts`: each collective counts or reads them."""
