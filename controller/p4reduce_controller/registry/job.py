"""A job in the registry: its members, and the grants that the switches of its tree must hold for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Final

from msgspec import Meta

from p4reduce_contracts.jobs.answers import Count, Usage, WaitingSlot
from p4reduce_contracts.jobs.errors import InvalidRequestError
from p4reduce_contracts.jobs.lease import ONLY_SWITCH, Level
from p4reduce_contracts.ranks import name_ranks
from p4reduce_contracts.wire.numbers import MAX_JOBS, MAX_RANKS
from p4reduce_controller.registry.hello import Address
from p4reduce_controller.registry.slots import SlotRange

FORMING = "FORMING"
ACTIVE = "ACTIVE"

LAST_EPOCH = 0xFFFF
ANY_SWITCH: Final[Mapping[str, str]] = MappingProxyType({"": ""})
"""The places at which HELLOs are expected: any switch, without an address to name."""
MOST_COUNTED = 2**64 - 1
"""The largest count of usage: the service's messages have 64 bits."""
JobId = Annotated[int, Meta(ge=1, le=MAX_JOBS)]

_LONGEST_RUN_ID = 256
_LONGEST_HOST = 64
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


Secret = Annotated[int, Meta(ge=0)]


@dataclass(frozen=True)
class Child:
    """What contributes to a switch: a rank, or `switch` with the `ranks` behind it.

    Its secret is in all its frames, and otherwise only in a rank's lease and the switches' entries.
    """

    address: Address
    secret: Secret = field(repr=False)
    ranks: tuple[int, ...]
    switch: str = ""


@dataclass(frozen=True)
class Parent:
    """The switch that a switch contributes to: its address, as seen here, and the secret of this switch there."""

    switch: str
    address: Address
    secret: Secret = field(repr=False)


@dataclass(frozen=True)
class Grant:
    """What the entries of one switch for one job in one epoch contain.

    A child's place in `children` is its bit. Without a `parent` the switch is the root of the job's tree. The grants of
    a job differ in nothing else; two jobs' grants never have the same epoch.
    """

    job_id: JobId
    name: str
    epoch: Annotated[int, Meta(ge=1, le=LAST_EPOCH)]
    slots: SlotRange
    children: tuple[Child, ...]
    parent: Parent | None = None
    switch: str = ONLY_SWITCH
    first_round: Annotated[int, Meta(ge=0, lt=1 << 32)] = 0
    """A random number, the same in all grants of a job; 0: a controller without one made the grant."""

    @property
    def level(self) -> Level:
        """The switch and its children as a lease has them."""
        children = tuple(child.ranks for child in self.children)
        return Level(self.switch, children, self.parent.switch if self.parent is not None else None)


@dataclass
class Member:
    """A rank that has joined, of the launch `run_id`. `addresses` has its own at each switch where its HELLO has come.

    `target` names the switch that it sends to, "": those side by side, or the one address that all switches have.

    `waiting` and `watching` count its open calls; `disconnected_at` is when the connection of the last of them ended.
    `slot_wait` is what it waited for at its last heartbeat, None in no collective, and `usage` what it has counted.
    """

    rank: Annotated[int, Meta(ge=0, lt=MAX_RANKS)]
    nonce: Annotated[int, Meta(ge=0)]
    last_seen: float = 0.0
    run_id: str = ""
    addresses: dict[str, Address] = field(default_factory=dict)
    target: str = ""
    waiting: int = 0
    watching: int = 0
    disconnected_at: float | None = None
    problem: str | None = None
    slot_wait: WaitingSlot | None = None
    usage: Usage = Usage()


@dataclass
class Job:
    """A named group of `world_size` ranks that holds slots for as long as it exists.

    `grants` are those of the switches of its tree, by name, the root first, or of those side by side, in the order of
    the lease; none while ranks are missing. The job is ACTIVE from when each of these switches holds its grant's
    entries; before that `installed` are those that do. `switches` is the most side by side that it takes, 0: all.
    `counted_from` is what a switch's counters showed before the job's first entries there, by switch.
    `owner` is its creator (for the quotas), `problem` why it has no lease though every rank has joined, and
    `last_reset` why it was reset last; each is None without such a reason.
    `owner_lock` and `member_lock` are the digests of its tokens, "" where it has none.
    An `ephemeral` job is removed when it has no members for some time; `empty_since` is when that began, None while it
    has some, and `joined` whether it ever had one.
    `part_of` is the job whose shard it sums. `created` is in seconds since 1970; `hosts` has the host of each rank that
    ever joined, and `usage` what all of them have counted, its collectives those of rank 0; `resets` counts those of
    the ACTIVE job by cause. Nobody joins one with a `single_epoch` again.
    """

    name: str
    id: JobId
    world_size: Annotated[int, Meta(ge=1, le=MAX_RANKS)]
    slots: SlotRange
    members: dict[int, Member] = field(default_factory=dict)
    grants: dict[str, Grant] = field(default_factory=dict)
    active: bool = False
    installed: set[str] = field(default_factory=set)
    last_reset: str | None = None
    counted_from: dict[str, dict[str, Count]] = field(default_factory=dict)
    owner: str = ""
    problem: str | None = None
    owner_lock: str = ""
    member_lock: str = ""
    ephemeral: bool = False
    joined: bool = False
    empty_since: float | None = None
    part_of: str = ""
    switches: int = 0
    created: float = 0.0
    hosts: dict[str, str] = field(default_factory=dict)
    usage: Usage = Usage()
    resets: dict[str, int] = field(default_factory=dict)
    single_epoch: bool = False

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
        return next(iter(self.grants.values())).epoch if self.active else 0

    @property
    def first_round(self) -> int:
        """The number of the first round of every slot in the present grants."""
        return next(iter(self.grants.values())).first_round

    @property
    def tree(self) -> tuple[Level, ...]:
        """The switches that sum for it, in the order of its grants; () while FORMING."""
        return tuple(grant.level for grant in self.grants.values()) if self.active else ()

    @property
    def is_side_by_side(self) -> bool:
        """Whether it has several switches, none of them above another."""
        return len(self.grants) > 1 and all(grant.parent is None for grant in self.grants.values())

    @property
    def run_id(self) -> str:
        """The launch of all its members."""
        return next((member.run_id for member in self.members.values()), "")

    def as_ended(self) -> Job:
        """Return what is kept of it when it was removed."""
        return replace(self, members={}, grants={}, active=False)

    def count(self, member: Member, usage: Usage) -> None:
        """Record the counts of a present or former member since it joined; counts below earlier ones are ignored."""
        grown, known = {}, {}
        for name, total in vars(self.usage).items():
            before = getattr(member.usage, name)
            known[name] = max(before, getattr(usage, name))
            more = known[name] - before if name != "collectives" or not member.rank else 0
            grown[name] = min(total + more, MOST_COUNTED)
        self.usage, member.usage = Usage(**grown), Usage(**known)

    def paths(self, rank: int) -> list[tuple[int, list[Level]]]:
        """Return the secret of a rank of an ACTIVE job at each switch that it sends to, and those from there up."""
        found = []
        for grant in self.grants.values():
            for child in grant.children:
                if child.ranks == (rank,) and not child.switch:
                    levels = [grant.level]
                    while (parent := levels[-1].parent) is not None:
                        levels.append(self.grants[parent].level)
                    found.append((child.secret, levels))
        return found

    def without_hello(self, switch: str) -> list[int]:
        """Return the members whose HELLO has not come to this switch; "": to any."""
        known = sorted(self.members.items())
        return [rank for rank, member in known if not (switch in member.addresses if switch else member.addresses)]

    def missing(self, places: Mapping[str, str] = ANY_SWITCH) -> str:
        """Return why the job is not ACTIVE: the ranks, and the addresses for HELLO, which `places` has by switch."""
        absent = [rank for rank in range(self.world_size) if rank not in self.members]
        parts = [f"{name_ranks(absent)} did not join"] if absent else []
        problems: dict[int, str] = {}
        for name, address in places.items():
            silent = self.without_hello(name)
            told = {rank: problem for rank in silent if (problem := self.members[rank].problem) is not None}
            problems |= told
            if plain := [rank for rank in silent if rank not in told]:
                where = f"{f' {name}' if name else ''}{f', expected at {address}' if address else ''}"
                advice = " (`p4reduce controller run --switch` sets it)" if address and not name else ""
                which = "switch" if name else "the switch"
                parts.append(f"no HELLO of {name_ranks(plain)} came through {which}{where}{advice}")
        return "; ".join([*parts, *problems.values()]) or self.problem or self._without_entries()

    def _without_entries(self) -> str:
        if len(self.grants) < 2:
            return "every rank is there, but the switch has not taken the job's entries"
        names = ", ".join(name for name in self.grants if name not in self.installed)
        return f"every rank is there, but these switches have not taken the job's entries: {names}"


def check_run_id(run_id: str) -> None:
    """Raise InvalidRequestError unless `run_id` may be a launch's."""
    if len(run_id) > _LONGEST_RUN_ID:
        raise InvalidRequestError(f"a run id has at most {_LONGEST_RUN_ID} characters, not {len(run_id)}")


def check_host(host: str) -> None:
    """Raise InvalidRequestError unless `host` may be the name of a rank's host."""
    if len(host) > _LONGEST_HOST or not host.isprintable():
        raise InvalidRequestError(f"a host's name has at most {_LONGEST_HOST} characters, all printable, not {host!r}")


def check_name(name: str) -> None:
    """Raise InvalidRequestError unless `name` may be a job's."""
    if not _NAME.fullmatch(name):
        raise InvalidRequestError(
            f"{name!r} cannot name a job: use 1 to 63 letters, digits, dots, dashes and underscores, "
            "beginning with a letter or digit"
        )
