"""What the job service answers, as plain frozen dataclasses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from p4reduce_contracts.jobs.lease import Level
from p4reduce_contracts.wire.side_by_side import place_of, slots_together


@dataclass(frozen=True)
class SwitchAddress:
    """The UDP address of a switch for ranks; `name` is "" for the one address that all switches have."""

    name: str
    host: str
    port: int

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class JoinTicket:
    """A rank's permission to say HELLO to each of `switches`."""

    nonce: int
    job: str
    job_id: int
    rank: int
    world_size: int
    switches: tuple[SwitchAddress, ...]
    columns: int
    block_words: int
    hello_interval_s: float


@dataclass(frozen=True)
class WaitingSlot:
    """The slot for whose RESULT a rank waits longest, in seconds, and how many slots wait (`in_flight`).

    `slot` counts from the job's first, over all its switches. `missing` is a bitmap of the children that had not
    contributed to the switch `level` levels above the rank's own, as a switch last said; 0 if none has said anything
    yet.
    """

    slot: int
    round: int
    missing: int
    waited_s: float
    in_flight: int
    level: int = 0

    @property
    def missing_children(self) -> tuple[int, ...]:
        """The bits that are set in the bitmap: ranks, where the job has one switch."""
        return tuple(bit for bit in range(self.missing.bit_length()) if self.missing >> bit & 1)


@dataclass(frozen=True)
class Usage:
    """The counts of a rank since it joined, or of all ranks of a job; `collectives` are then those of rank 0.

    Bytes are those on the wire.
    """

    collectives: Annotated[int, Meta(ge=0)] = 0
    bytes_up: Annotated[int, Meta(ge=0)] = 0
    bytes_down: Annotated[int, Meta(ge=0)] = 0
    retransmissions: Annotated[int, Meta(ge=0)] = 0


@dataclass(frozen=True)
class MemberAddress:
    """The address from which the HELLO of a rank came, as `switch` saw it."""

    switch: str
    host: str
    port: int
    ingress_port: int
    mac: str


@dataclass(frozen=True)
class MemberInfo:
    """One joined rank; `addresses` are those at the switches where its HELLO has arrived.

    `slot_wait` is None while it is in no collective, or the asker may not see it.
    """

    rank: int
    silent_s: float
    addresses: tuple[MemberAddress, ...] = ()
    slot_wait: WaitingSlot | None = None


@dataclass(frozen=True)
class JobInfo:
    """One job as the controller sees it. `state` is "FORMING" or "ACTIVE"; `epoch` is 0 while FORMING.

    `private`: joining takes one of its tokens, which only the answer to its creation has, and removing the owner's.
    `hidden`: the asker may not see `epoch` and where the members are, so these are 0 and ().
    `run_id` is the launch that its members belong to, "" without members or where the launch has no id.

    `tree` is the job's switches, the root first, or those side by side in the order of the lease; () while FORMING.
    It has its slots at each of them, and takes at most `switches` side by side, 0: all.

    `hosts` has a name for each rank, "" where it is not known, `resets` how often the job was reset by cause, and
    `shards` the jobs that sum parts of its tensors; `part_of` is such a job's own. `created` and `ended` are seconds
    since 1970; `ended` is 0 unless `state` is "ENDED", `created` of a job of an earlier version.
    """

    name: str
    id: int
    world_size: int
    first_slot: int
    slots: int
    state: str
    epoch: int
    members: tuple[MemberInfo, ...]
    last_reset: str | None
    run_id: str = ""
    private: bool = False
    ephemeral: bool = False
    hidden: bool = False
    owner_token: str = ""
    member_token: str = ""
    tree: tuple[Level, ...] = ()
    usage: Usage = Usage()
    hosts: tuple[str, ...] = ()
    resets: dict[str, int] = field(default_factory=dict)
    part_of: str = ""
    switches: int = 0
    shards: tuple[JobInfo, ...] = ()
    created: float = 0.0
    ended: float = 0.0
    missing: str = ""
    """The reason why it is FORMING, "" if it is not."""

    @property
    def is_side_by_side(self) -> bool:
        """Whether it has several switches, none of them above another."""
        return len(self.tree) > 1 and all(level.parent is None for level in self.tree)

    def place_of(self, slot: int) -> tuple[Level, int]:
        """Return which of the switches side by side has one of its slots, and the slot's number there."""
        switch, number = place_of(slot, len(self.tree), slots_together(len(self.tree), self.slots))
        return self.tree[switch], number

    @property
    def ranks_by_host(self) -> dict[str, list[int]]:
        """The ranks of each host whose name is known."""
        found: dict[str, list[int]] = {}
        for rank, host in enumerate(self.hosts):
            if host:
                found.setdefault(host, []).append(rank)
        return found


@dataclass(frozen=True)
class JobList:
    """All jobs, and the switches' slots."""

    jobs: tuple[JobInfo, ...]
    slots: int
    free_slots: int

    @property
    def with_shards(self) -> tuple[JobInfo, ...]:
        """All jobs, each before those that sum its shards."""
        return tuple(one for job in self.jobs for one in (job, *job.shards))


@dataclass(frozen=True)
class Count:
    """Frames and their bytes, as the switch counted them."""

    packets: Annotated[int, Meta(ge=0)] = 0
    bytes: Annotated[int, Meta(ge=0)] = 0

    def __sub__(self, other: Count) -> Count:
        return Count(max(0, self.packets - other.packets), max(0, self.bytes - other.bytes))


@dataclass(frozen=True)
class JobStats:
    """One switch's counters of one job since the job was made."""

    name: str
    id: int
    contributions: Count = Count()
    duplicates: Count = Count()
    results: Count = Count()
    pendings: Count = Count()
    switch: str = ""
    parent_answers: Count = Count()
    """RESULT and PENDING from the switch above."""
    part_of: str = ""
    """The job whose shard this one sums."""
    hosts: int = 0
    """Number of hosts that its ranks are on; 0: not known."""


@dataclass(frozen=True)
class DropStats:
    """Frames that a switch dropped for one reason."""

    reason: str
    count: Count = Count()
    switch: str = ""


@dataclass(frozen=True)
class AwaySwitch:
    """A switch whose counters could not be read, and why."""

    switch: str
    problem: str


@dataclass(frozen=True)
class Stats:
    """The switches' counters; those of the switches in `away` are missing."""

    jobs: tuple[JobStats, ...]
    drops: tuple[DropStats, ...]
    away: tuple[AwaySwitch, ...] = ()

    @property
    def switches(self) -> tuple[str, ...]:
        """The names of all switches of the controller."""
        return tuple(sorted({*(drop.switch for drop in self.drops), *(each.switch for each in self.away)}))


@dataclass(frozen=True)
class SwitchInfo:
    """One switch of the controller. `host` and `port` are where workers send to.

    `problem` says why it cannot be used now, None if it can. `parent` is the switch above, None at the top; the link to
    it is from `uplink_port` to its `parent_port`, 0 until that is known. `link_problem` says what was not seen until
    then, and later that HELLOs do not arrive any more; None if they do.
    `ranks` have sent their HELLO to it, `jobs` have entries in it.
    """

    name: str
    p4runtime: str
    host: str
    port: int
    problem: str | None
    parent: str | None
    uplink_port: int
    parent_port: int
    link_problem: str | None
    ranks: int
    jobs: int
