"""A job in the registry: its members, and the grant that the switch must hold for it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from p4reduce_contracts.errors import InvalidTensorError
from p4reduce_contracts.jobs.answers import Count, WaitingSlot
from p4reduce_contracts.jobs.errors import InvalidRequestError
from p4reduce_contracts.wire import MAX_JOBS, MAX_RANKS
from p4reduce_contracts.wire.lanes import WIDTHS, check_lanes, check_width
from p4reduce_controller.jobs.hello import Address
from p4reduce_controller.jobs.slots import SlotRange

FORMING = "FORMING"
ACTIVE = "ACTIVE"

JobId = Annotated[int, Meta(ge=1, le=MAX_JOBS)]

_LONGEST_RUN_ID = 256
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True)
class Grant:
    """What the switch's entries for one job in one epoch contain.

    `addresses` and `secrets` are indexed by rank. Two grants never have the same epoch. A rank's secret is in all its
    frames, and otherwise only in its lease and the switch's entries.
    """

    job_id: JobId
    name: str
    epoch: Annotated[int, Meta(ge=1, le=0xFFFF)]
    slots: SlotRange
    addresses: tuple[Address, ...]
    secrets: tuple[Annotated[int, Meta(ge=0)], ...] = field(repr=False)

    @property
    def world_size(self) -> int:
        """How many ranks the job has."""
        return len(self.addresses)


@dataclass
class Member:
    """A rank that has joined, of the launch `run_id`. `address` is known once its HELLO has come through the switch.

    `waiting` and `watching` count its open calls; `disconnected_at` is when the connection of the last of them ended.
    `slot_wait` is what it waited for at its last heartbeat, None in no collective.
    """

    rank: Annotated[int, Meta(ge=0, lt=MAX_RANKS)]
    nonce: Annotated[int, Meta(ge=0)]
    last_seen: float = 0.0
    run_id: str = ""
    address: Address | None = None
    waiting: int = 0
    watching: int = 0
    disconnected_at: float | None = None
    problem: str = ""
    slot_wait: WaitingSlot | None = None


@dataclass
class Job:
    """A named group of `world_size` ranks that holds slots for as long as it exists.

    `grant` is None while ranks are missing. The job is ACTIVE from when the switch holds the grant's entries.
    `lane_bits` 0 leaves the width to the workers; `lane_bound` is the largest |t| a rank may send in a lane.
    `counted_from` is what the switch's counters showed before the job's first entries, None before that.
    `owner` is its creator (for the quotas), `problem` why it has no lease though every rank has joined.
    `owner_lock` and `member_lock` are the digests of its tokens, "" where it has none.
    An `ephemeral` job is removed when it has no members for some time; `empty_since` is when that began, None while it
    has some, and `joined` whether it ever had one.
    """

    name: str
    id: JobId
    world_size: Annotated[int, Meta(ge=1, le=MAX_RANKS)]
    slots: SlotRange
    lane_bits: int = 0
    lane_bound: int = 1
    members: dict[int, Member] = field(default_factory=dict)
    grant: Grant | None = None
    active: bool = False
    last_reset: str = ""
    counted_from: dict[str, Count] | None = None
    owner: str = ""
    problem: str = ""
    owner_lock: str = ""
    member_lock: str = ""
    ephemeral: bool = False
    joined: bool = False
    empty_since: float | None = None

    @property
    def private(self) -> bool:
        """Whether it has tokens."""
        return bool(self.owner_lock)

    @property
    def state(self) -> str:
        """FORMING or ACTIVE."""
        return ACTIVE if self.active else FORMING

    @property
    def epoch(self) -> int:
        """The epoch of the present lease, 0 while FORMING."""
        return self.grant.epoch if self.grant is not None and self.active else 0

    @property
    def run_id(self) -> str:
        """The launch of all its members."""
        return next((member.run_id for member in self.members.values()), "")

    def missing(self, switch: str = "") -> str:
        """Return why the job is not ACTIVE: the ranks, and the switch's address for HELLO."""
        absent = [rank for rank in range(self.world_size) if rank not in self.members]
        silent = [rank for rank, member in sorted(self.members.items()) if member.address is None]
        parts = []
        if absent:
            parts.append(f"{name_ranks(absent)} never joined")
        plain = [rank for rank in silent if not self.members[rank].problem]
        if plain:
            where = f", expected at {switch} (`p4reduce controller run --switch` sets it)" if switch else ""
            parts.append(f"the HELLO of {name_ranks(plain)} never arrived through the switch{where}")
        parts += [self.members[rank].problem for rank in silent if self.members[rank].problem]
        return "; ".join(parts) or self.problem or "every rank is there, but the switch has not taken the job's entries"


def name_ranks(ranks: list[int]) -> str:
    """ "rank 3", or "ranks 1, 2 and 5"."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def check_run_id(run_id: str) -> None:
    """Raise InvalidRequestError unless `run_id` may be a launch's."""
    if len(run_id) > _LONGEST_RUN_ID:
        raise InvalidRequestError(f"a run id has at most {_LONGEST_RUN_ID} characters, not {len(run_id)}")


def check_name(name: str) -> None:
    """Raise InvalidRequestError unless `name` may be a job's."""
    if not _NAME.fullmatch(name):
        raise InvalidRequestError(
            f"{name!r} cannot name a job: use 1 to 63 letters, digits, dots, dashes and underscores, "
            "beginning with a letter or digit"
        )


def check_job_lanes(name: str, world_size: int, bits: int, bound: int) -> None:
    """Raise InvalidRequestError unless every sum of `world_size` integers of at most `bound` fits the job's lanes."""
    if bound < 1:
        raise InvalidRequestError(f"the lane bound is the largest |t| that a rank may send: use 1 or more, not {bound}")
    try:
        if bits:
            check_width(bits)
        check_lanes(world_size, bound, bits or WIDTHS[-1], f"job {name}")
    except InvalidTensorError as error:
        raise InvalidRequestError(str(error)) from None
