"""What the controller grants a member for one epoch of a job."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Final

from p4reduce_contracts.errors import GeometryMismatchError
from p4reduce_contracts.wire.geometry import Geometry
from p4reduce_contracts.wire.numbers import MAX_CHILDREN, MAX_RANKS
from p4reduce_runtime.underlay import AGGREGATION_PORT

DEAD_AFTER_S: Final = 10.0
"""A controller that answers no heartbeat for this long (or for three intervals) is lost."""

ONLY_SWITCH: Final = "switch"
"""The name of a controller's only switch, where its configuration gives it none."""


@dataclass(frozen=True)
class Level:
    """A switch of a job's tree, and the ranks behind each of its children: by the child's bit of `seen`, ascending.

    A child is a rank, or a switch below. `parent` is the switch above, None at the root.
    """

    switch: str
    children: tuple[tuple[int, ...], ...]
    parent: str | None = None

    @property
    def full(self) -> int:
        """The `seen` bitmap of a round to which every child has contributed."""
        return (1 << len(self.children)) - 1

    def behind(self, bits: int) -> tuple[tuple[int, ...], ...]:
        """Return the ranks behind each of the children in a bitmap."""
        return tuple(ranks for bit, ranks in enumerate(self.children) if bits >> bit & 1)

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks behind the switch, ascending."""
        return tuple(sorted(chain.from_iterable(self.children)))


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
    secret: int = field(default=0, repr=False)
    """64 bits in every frame of this rank, both ways, which only the rank, the controller and the switch know."""
    private: bool = False
    """Whether joining the job takes a token."""
    levels: tuple[Level, ...] = field(default=(), hash=False)
    """The switches from the rank's own up to the root. Without any: one switch whose children are the ranks."""
    first_round: int = 0
    """The number of every slot's first round; the controller draws it for each grant, the same for all ranks."""

    def __post_init__(self) -> None:
        if not 1 <= self.world_size <= MAX_RANKS or not 0 <= self.rank < self.world_size:
            raise GeometryMismatchError(f"rank {self.rank} of {self.world_size}: a job has 1 to {MAX_RANKS} ranks")
        if not self.levels:
            ranks = tuple((rank,) for rank in range(self.world_size))
            object.__setattr__(self, "levels", (Level(ONLY_SWITCH, ranks),))
        self._check_levels()
        if self.slot_count < 1:
            raise GeometryMismatchError(f"job {self.name!r} was leased no slots; create it with --slots 1 or more")
        most = self.geometry.max_world_size
        if self.world_size > most:
            raise GeometryMismatchError(
                f"frames of {self.columns} columns x {self.block_words} words open collectives of at most "
                f"{most} ranks, and job {self.name!r} has {self.world_size}; use a larger pipeline"
            )

    @cached_property
    def geometry(self) -> Geometry:
        """The shape of the job's frames."""
        return Geometry(self.columns, self.block_words)

    @property
    def full(self) -> int:
        """The root's `seen` bitmap of a round to which all its children have contributed."""
        return self.levels[-1].full

    @property
    def depth(self) -> int:
        """Number of levels from the rank's own switch up to the root."""
        return len(self.levels) - 1

    @property
    def dead_after_s(self) -> float:
        """Seconds that heartbeats may stay unanswered before the controller counts as lost."""
        return max(DEAD_AFTER_S, 3 * self.heartbeat_interval_s)

    def _check_levels(self) -> None:
        """Raise GeometryMismatchError unless the levels lead from this rank to a root with all ranks."""
        behind: tuple[int, ...] = (self.rank,)
        for level in self.levels:
            if len(level.children) > MAX_CHILDREN:
                raise GeometryMismatchError(
                    f"switch {level.switch} has {len(level.children)} children of job {self.name!r}, and a switch "
                    f"takes at most {MAX_CHILDREN}: put fewer ranks behind it"
                )
            if behind not in level.children:
                raise GeometryMismatchError(f"the lease of rank {self.rank} has it not behind switch {level.switch}")
            behind = level.ranks
        if behind != tuple(range(self.world_size)):
            raise GeometryMismatchError(
                f"the lease of rank {self.rank} has other ranks than 0 to {self.world_size - 1}"
            )
