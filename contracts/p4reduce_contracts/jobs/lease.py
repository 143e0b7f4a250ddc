"""What the controller grants a member for one epoch of a job."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from p4reduce_contracts.errors import GeometryMismatchError
from p4reduce_contracts.wire.geometry import Geometry
from p4reduce_contracts.wire.numbers import AGGREGATION_PORT, MAX_RANKS

DEAD_AFTER_S: Final = 10.0
"""A controller that answers no heartbeat for this long (or for three intervals) is lost."""


@dataclass(frozen=True)
class Lease:
    """One member's place in one epoch of a job. Raises GeometryMismatchError where no worker could use it."""

    job_id: int
    name: str
    epoch: int
    rank: int
    world_size: int
    slot_count: int
    columns: int
    block_words: int
    heartbeat_interval_s: float = 2.0
    switch_host: str = "127.0.0.1"
    switch_port: int = AGGREGATION_PORT
    lane_bits: int = 0
    """How wide the job's lanes are; 0: the narrowest that holds the sums."""
    lane_bound: int = 1
    """The largest |t| that a rank may send in a lane."""
    secret: int = field(default=0, repr=False)
    """In every frame of this rank, both ways; 64 bits that only the rank, the controller and the switch know."""
    private: bool = False
    """Whether joining the job takes a token."""

    def __post_init__(self) -> None:
        if not 1 <= self.world_size <= MAX_RANKS or not 0 <= self.rank < self.world_size:
            raise GeometryMismatchError(f"rank {self.rank} of {self.world_size}: a job has 1 to {MAX_RANKS} ranks")
        if self.slot_count < 1:
            raise GeometryMismatchError(f"job {self.name!r} was leased no slots; create it with --slots 1 or more")
        ranks = self.geometry.max_world_size
        if self.world_size > ranks:
            raise GeometryMismatchError(
                f"frames of {self.columns} columns x {self.block_words} words open collectives of at most "
                f"{ranks} ranks, and job {self.name!r} has {self.world_size}; use a larger pipeline"
            )

    @cached_property
    def geometry(self) -> Geometry:
        """The shape of the job's frames."""
        return Geometry(self.columns, self.block_words)

    @property
    def full(self) -> int:
        """The `seen` bitmap of a round to which every rank has contributed."""
        return (1 << self.world_size) - 1

    @property
    def dead_after_s(self) -> float:
        """How long heartbeats may stay unanswered before the controller counts as lost."""
        return max(DEAD_AFTER_S, 3 * self.heartbeat_interval_s)
