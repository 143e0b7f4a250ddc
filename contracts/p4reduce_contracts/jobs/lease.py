"""What the controller grants a member for one epoch of a job."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Final

from p4reduce_contracts.errors import GeometryMismatchError
from p4reduce_contracts.wire.geometry import Geometry
from p4reduce_contracts.wire.numbers import MAX_CHILDREN, MAX_RANKS
from p4reduce_contracts.wire.side_by_side import slots_together
from p4reduce_runtime.underlay import AGGREGATION_PORT

DEAD_AFTER_S: Final = 10.0
"""A controller that answers no heartbeat for this long (or for three intervals) is lost."""

MOST_SWITCHES: Final = 32
"""Most switches side by side of one job."""

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
class LeasedSwitch:
    """A switch that a member sends to."""

    host: str = "127.0.0.1"
    port: int = AGGREGATION_PORT
    secret: int = field(default=0, repr=False)
    """64 bits in every frame of this rank, both ways, which only the rank, the controller and the switch know."""
    levels: tuple[Level, ...] = field(default=(), hash=False)
    """The switches from this one up to the root of its tree. Without any: one switch whose children are the ranks."""

    @property
    def name(self) -> str:
        """The name of the switch itself."""
        return self.levels[0].switch

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Lease:
    """One member's place in one epoch of a job. Raises GeometryMismatchError where no worker could use it."""

    job_id: int
    name: str
    epoch: int
    rank: int
    world_size: int
    slot_count: int
    """Slots of the job at all of its switches together; which is where: wire/side_by_side.py."""
    columns: int
    block_words: int
    heartbeat_interval_s: float = 2.0
    switches: tuple[LeasedSwitch, ...] = (LeasedSwitch(),)
    """The switches side by side, the same on all ranks; the only one may be of a tree, and another for other ranks."""
    private: bool = False
    """Whether joining the job takes a token."""
    first_round: int = 0
    """The number of every slot's first round; the controller draws it for each grant, the same for all ranks."""

    def __post_init__(self) -> None:
        if not 1 <= self.world_size <= MAX_RANKS or not 0 <= self.rank < self.world_size:
            raise GeometryMismatchError(f"rank {self.rank} of {self.world_size}: a job has 1 to {MAX_RANKS} ranks")
        ranks = tuple((rank,) for rank in range(self.world_size))
        flat = (Level(ONLY_SWITCH, ranks),)
        switches = tuple(switch if switch.levels else replace(switch, levels=flat) for switch in self.switches)
        object.__setattr__(self, "switches", switches)
        if not 1 <= len(switches) <= MOST_SWITCHES:
            raise GeometryMismatchError(
                f"job {self.name!r} has {len(switches)} switches; a job has 1 to {MOST_SWITCHES}"
            )
        for switch in switches:
            self._check_levels(switch.levels)
            if len(switches) > 1 and [level.children for level in switch.levels] != [ranks]:
                raise GeometryMismatchError(f"switch {switch.name} sums beside others, and not for each rank alone")
        if self.slot_count < len(switches) or self.slot_count % len(switches):
            raise GeometryMismatchError(
                f"job {self.name!r} was leased {self.slot_count} slots at {len(switches)} switches; create it with "
                "--slots 1 or more"
            )
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
        """The root's `seen` bitmap of a round to which all its children have contributed; the same at all switches."""
        return self.switches[0].levels[-1].full

    @property
    def depth(self) -> int:
        """Number of levels from the rank's own switch up to the root; 0 where several switches are side by side."""
        return len(self.switches[0].levels) - 1

    @property
    def slots_together(self) -> int:
        """Number of slots in a row at one of several switches side by side."""
        return slots_together(len(self.switches), self.slot_count // len(self.switches))

    @property
    def dead_after_s(self) -> float:
        """Seconds that heartbeats may stay unanswered before the controller counts as lost."""
        return max(DEAD_AFTER_S, 3 * self.heartbeat_interval_s)

    def _check_levels(self, levels: tuple[Level, ...]) -> None:
        """Raise GeometryMismatchError unless the levels lead from this rank to a root with all ranks."""
        behind: tuple[int, ...] = (self.rank,)
        for level in levels:
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
