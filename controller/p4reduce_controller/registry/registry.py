"""The registry: every job and its members, as a state machine without I/O.

Events (create, join, HELLO, heartbeat, leave, ...) come in with the time in seconds; what each switch must
hold as a consequence is `grants(switch)`. Its reconciler reports back with `installed` or
`install_failed`.
A job goes

    FORMING --every rank's HELLO is there--> FORMING with grants --all installed--> ACTIVE
       ^                                                                               |
       +------ a rank leaves, ends or joins again, a switch restarts ------------------+

There is a grant for each switch that the places of the ranks need, or for each side by side that can be used, all of
them in one new epoch. A reset of an ACTIVE job drops all members: calls with their nonces are answered with the reason,
and they must join again.

The state for a later run of the controller is saved at every step (`JobStore`), and read with `restore`. Only
making and removing a job, and drawing an epoch, depend on that: a failing disk stops nothing else. An older
state on the disk is safe, since the switch is compared with it, and members without heartbeats are dropped.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable
from enum import StrEnum
from functools import partial
from typing import Protocol

from p4reduce_contracts.artifacts import SwitchGeometry
from p4reduce_contracts.jobs.answers import Count, Usage, WaitingSlot
from p4reduce_contracts.jobs.errors import (
    ControllerFailedError,
    InvalidRequestError,
    JobExistsError,
    MemberResetError,
    PlaceTakenError,
    QuotaExceededError,
    StoreError,
    SwitchFullError,
    UnknownJobError,
)
from p4reduce_contracts.jobs.lease import ONLY_SWITCH
from p4reduce_contracts.jobs.reasons import job_removed, rank_finished, rank_left
from p4reduce_contracts.ranks import name_ranks
from p4reduce_contracts.wire.hello import MEMBER_BITS
from p4reduce_contracts.wire.numbers import MAX_JOBS, SECRET_BITS
from p4reduce_controller.config import QuotaConfig
from p4reduce_controller.registry.hello import Hello
from p4reduce_controller.registry.job import Grant, Job, Member, check_host, check_name, check_run_id
from p4reduce_controller.registry.links import LINK_JOB, Links, random_nonce
from p4reduce_controller.registry.placement import check_targets, choose, make_grants, place, used_link
from p4reduce_controller.registry.slots import DEFAULT_SLOTS, MOST_BY_DEFAULT, SlotAllocator, SlotRange
from p4reduce_controller.registry.tokens import Tokens, lock
from p4reduce_controller.registry.tree import PlacementError, Tree
from p4reduce_runtime.logs import event

_log = logging.getLogger(__name__)

RECONNECT_S = 1.0
"""Seconds after the end of its connection at which a member is dropped: it may reconnect in that time."""
SINGLE_EPOCH_RECONNECT_S = 0.1
"""The same in a job with a single epoch: its members go on in another one within a second, and may do so in vain."""
NEVER_JOINED_S = 30.0
"""Seconds that an ephemeral job is kept before its first rank joins, as its maker does at once."""
_MOST_WAITS = 4  # of one member at a time: every change wakes each of them
_MOST_FORMER = 4096
_random_secret = partial(secrets.randbits, SECRET_BITS)
_UNKNOWN_MEMBER = "the controller has no such member: it restarted after the job's reset, or the reset was long ago"


class Cause(StrEnum):
    """The kind of reason for which a job was reset, as a label of the metrics; the reason is a text with names."""

    LEFT = "rank left"
    FINISHED = "job finished"
    REMOVED = "job removed"
    DISCONNECTED = "rank gone"
    SILENT = "rank silent"
    JOINED_AGAIN = "rank joined again"
    DIFFERENT_SWITCHES = "switch named for some ranks only"
    SWITCH_LOST = "switch lost"
    SWITCH_REFUSED = "switch refused entries"
    LINK_CHANGED = "link changed"
    RECONFIGURED = "switches reconfigured"
    NO_EPOCH = "no epoch"

    @property
    def level(self) -> int:
        """The log level: a reset that was requested is no warning."""
        return logging.INFO if self in (Cause.LEFT, Cause.FINISHED, Cause.REMOVED) else logging.WARNING


def _reconnect_s(job: Job) -> float:
    return SINGLE_EPOCH_RECONNECT_S if job.single_epoch else RECONNECT_S


def _at(member: Member) -> str:
    address = next(iter(member.addresses.values()), None)
    return "" if address is None else f" at {address.host}:{address.udp_port}"


class JobStore(Protocol):
    """The storage of the registry's jobs; see `store.Store`. Each method raises StoreError when that fails."""

    def draw_epoch(self, slots: SlotRange, in_use: Collection[int], switches: Collection[str]) -> int: ...
    def save(self, job: Job) -> None: ...
    def end(self, job: Job) -> None: ...
    def save_ended(self, job: Job) -> None: ...
    def ended(self, name: str = "") -> list[tuple[float, Job]]: ...


class Registry:
    """All jobs of one tree of switches, or several. One thread only may call it.

    `version` rises when an answer may change.
    """

    def __init__(
        self,
        geometry: SwitchGeometry,
        store: JobStore,
        heartbeat_timeout_s: float = 10.0,
        draw_nonce: Callable[[], int] = random_nonce,
        draw_secret: Callable[[], int] = _random_secret,
        quotas: QuotaConfig | None = None,
        tree: Tree | None = None,
        links: Links | None = None,
    ) -> None:
        """`geometry` is that of every switch; a slot has the same number in all of them."""
        self.geometry = geometry
        self.tree = tree or Tree()
        self.links = links or Links(self.tree)
        self._max_world_size = min(geometry.max_world_size, self.tree.max_world_size)
        self.slots = SlotAllocator(geometry.slots)
        self.version = 0
        self.joins = 0
        self.grants_given = 0
        self.resets: Counter[Cause] = Counter()
        """Number of resets of jobs that were ACTIVE."""
        self._store = store
        self._quotas = quotas or QuotaConfig()
        self._unsaved: set[str] = set()
        self._away: set[str] = set()
        """The switches that cannot be used now."""
        self._draw_nonce = draw_nonce
        self._draw_secret = draw_secret
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._jobs: dict[str, Job] = {}
        self._members: dict[int, tuple[Job, Member]] = {}  # by nonce
        self._former: OrderedDict[int, tuple[str, Job, Member]] = OrderedDict()  # by nonce: why, and of which job
        self._last_id = 0

    def jobs(self) -> list[Job]:
        """All jobs by name."""
        return [job for _, job in sorted(self._jobs.items())]

    def get(self, name: str) -> Job:
        """The job of that name. Raises UnknownJobError, which lists the known ones."""
        if name not in self._jobs:
            known = ", ".join(sorted(self._jobs)) or "none: make one with `p4reduce job create`"
            raise UnknownJobError(f"there is no job {name!r}; known jobs: {known}")
        return self._jobs[name]

    def ended(self, name: str = "") -> list[tuple[float, Job]]:
        """Return the jobs that were removed, or those of a name, and when, the last one first. Raises StoreError."""
        return self._store.ended(name)

    def shards(self, name: str) -> list[Job]:
        """Return the jobs that sum shards of a job."""
        return [job for job in self.jobs() if job.part_of == name]

    def grants(self, switch: str = ONLY_SWITCH) -> dict[int, Grant]:
        """Return the grants that a switch should hold, by job id."""
        return {job.id: job.grants[switch] for job in self._jobs.values() if switch in job.grants}

    def create(
        self,
        name: str,
        world_size: int,
        slots: int | None = None,
        *,
        owner: str = "",
        tokens: Tokens | None = None,
        ephemeral: bool = False,
        part_of: str = "",
        switches: int = 0,
        created: float = 0.0,
        single_epoch: bool = False,
    ) -> Job:
        """Make a job and give it slots; with `tokens` it is private. `sweep` removes an `ephemeral` one.

        `part_of` names the job whose shard it sums, on as many switches; of those side by side it takes at most
        `switches`, 0: all. `created` is kept for `job show`, in seconds since 1970. A job with a `single_epoch` ends
        with its last member.

        Raises InvalidRequestError, UnknownJobError, JobExistsError, SwitchFullError, QuotaExceededError or StoreError.
        """
        check_name(name)
        limit = self._max_world_size
        if not 1 <= world_size <= limit:
            raise InvalidRequestError(
                f"world size {world_size} is not possible: with {self.geometry.columns} columns of "
                f"{self.geometry.block_words} words this pipeline takes 1 to {limit} ranks a job"
            )
        if name in self._jobs:
            raise JobExistsError(f"there is a job {name!r} already; remove it or choose another name")
        if switches > (most := len(self.tree.side_by_side) or 1):
            raise InvalidRequestError(
                f"a job can have at most {most} switch{'es side by side' if most > 1 else ''} of this controller, "
                f"not {switches}"
            )
        if part_of:
            whole = self.get(part_of)
            switches, single_epoch = whole.switches, whole.single_epoch
            if whole.part_of:
                raise InvalidRequestError(f"job {part_of!r} sums a shard itself: name the job of all ranks")
            if whole.owner != owner:  # `job show` would list this owner's job as a shard of another owner's
                part_of = ""
        for ended in [each for each in self._jobs.values() if each.single_epoch and each.joined]:
            self._remove_if_unused(ended, now=0.0)  # whose slots this job may need
        job_id = self._free_id()
        shares = self._quotas.slots or (switches or len(self.tree.side_by_side)) > 1
        most = DEFAULT_SLOTS if shares else MOST_BY_DEFAULT
        job = Job(name, job_id, world_size, self.slots.take(name, slots, most), owner=owner)
        job.ephemeral, job.part_of, job.switches, job.created = ephemeral, part_of, switches, created
        job.single_epoch = single_epoch
        if tokens is not None:
            job.owner_lock, job.member_lock = lock(tokens.owner), lock(tokens.member)
        try:
            self._check_quotas(owner, job.slots.count)
            self._store.save(job)
        except (QuotaExceededError, StoreError):
            self.slots.release(name)
            raise
        self._jobs[name] = job
        self._last_id = job_id
        self.version += 1
        event(
            _log,
            logging.INFO,
            "job created",
            job=name,
            id=job_id,
            world_size=world_size,
            slots=f"{job.slots.base}..{job.slots.base + job.slots.count - 1}",
            owner=owner,
            private=job.private,
        )
        return job

    def remove(self, name: str) -> None:
        """Remove a job in any state. Raises UnknownJobError, or StoreError, and then the job stays."""
        job = self.get(name)
        self._store.end(job)
        del self._jobs[name]
        self._unsaved.discard(name)
        self._reset(job, job_removed(name), Cause.REMOVED)
        self.slots.release(name)
        event(_log, logging.INFO, "job removed", job=name)

    def restore(self, jobs: Iterable[Job], now: float) -> None:
        """Restore the jobs of an earlier run of the controller; their members have time to call again.

        A job for which this switch's pipeline has no room is dropped, with a warning.
        """
        for job in jobs:
            if job.world_size > self._max_world_size:
                event(_log, logging.WARNING, "job dropped", job=job.name, cause="world size too large for the pipeline")
                self._store.end(job)
                continue
            try:
                self.slots.hold(job.name, job.slots)
            except SwitchFullError as error:
                event(_log, logging.WARNING, "job dropped", job=job.name, cause=str(error))
                self._store.end(job)
                continue
            self._jobs[job.name] = job
            self._last_id = max(self._last_id, job.id)
            for member in job.members.values():
                self._members[member.nonce] = (job, member)
                if not job.active:
                    member.addresses.clear()
            if (
                any(name not in self.tree.switches for name in job.grants)
                or any(level.parent not in (None, self.tree.parent(level.switch)) for level in job.tree)
                or (job.is_side_by_side and not set(self.tree.side_by_side).issuperset(job.grants))
            ):
                self._reset(job, "the controller's switches were configured anew", Cause.RECONFIGURED)
        self.record_heartbeats(now)
        if self._jobs:
            event(_log, logging.INFO, "jobs restored", jobs=len(self._jobs), members=len(self._members))

    def record_heartbeats(self, now: float) -> None:
        """Record a heartbeat of every member, after a pause of the controller itself."""
        for _, member in self._members.values():
            member.last_seen = now
            member.disconnected_at = None

    def join(
        self,
        name: str,
        rank: int,
        world_size: int,
        now: float,
        run_id: str = "",
        *,
        former: int = 0,
        owner: str = "",
        target: str = "",
        host: str = "",
    ) -> Member:
        """Add rank `rank` as a member, which sends to the switch `target`. `owner`, who joins, is logged.

        `host` is the name of its host, as it says.

        A member keeps its rank until it leaves or `sweep` drops it: only `former`, the nonce with which the same
        worker joined before, lets it join again earlier, and that resets an ACTIVE job.
        Raises PlaceTakenError while another worker has the rank or the job has members of another launch,
        UnknownJobError or InvalidRequestError, which resets the job where ranks differ in naming a switch.
        """
        job = self.get(name)
        if world_size != job.world_size:
            raise InvalidRequestError(
                f"job {name} has world size {job.world_size}, not {world_size}: start that many workers, or "
                "remove the job and create it again"
            )
        if not 0 <= rank < world_size:
            raise InvalidRequestError(f"rank {rank} is not in job {name}, which has ranks 0 to {world_size - 1}")
        check_run_id(run_id)
        check_host(host)
        if job.members and run_id != job.run_id:
            raise PlaceTakenError(
                f"job {name} is held by the launch {job.run_id!r} ({name_ranks(sorted(job.members))}), and rank {rank} "
                f"belongs to the launch {run_id!r}: it waits until that one has ended; or give it a job of its own"
            )
        if rank in job.members and job.members[rank].nonce != former:
            raise PlaceTakenError(
                f"rank {rank} of job {name} is held by another worker{_at(job.members[rank])}: end that one first. Its "
                f"place is free {_reconnect_s(job):g} s after its connection has ended, and after "
                f"{self._heartbeat_timeout_s:g} s (controller.heartbeat_timeout_s) without a call at the latest"
            )
        if rank in job.members:
            self._drop(job, rank, f"rank {rank} joined again", Cause.JOINED_AGAIN)
        member = Member(rank, self._fresh_nonce(), now, run_id, target=target)
        job.members[rank] = member
        self._members[member.nonce] = (job, member)
        job.joined = True
        job.hosts[str(rank)] = host
        self.joins += 1
        self._save(job)
        event(_log, logging.INFO, "rank joined", job=name, rank=rank, run_id=run_id, owner=owner)
        try:
            check_targets(job, self.tree)
        except PlacementError as error:
            self._reset(job, str(error), Cause.DIFFERENT_SWITCHES)
            raise InvalidRequestError(str(error)) from None
        return member

    def hello(self, hello: Hello, now: float, switch: str = ONLY_SWITCH) -> bool:
        """Record a HELLO that `switch` punted, of a rank or of another switch.

        Return False where it tells nothing new of a link, and where it does not say where a rank is: no member has its
        nonce, it was sent to another switch, an earlier HELLO with this nonce came from another address (the first is
        kept), or another rank has this address.
        """
        if hello.job_id == LINK_JOB:
            return self._link_hello(hello, switch)
        meant, nonce = divmod(hello.nonce, 1 << MEMBER_BITS)
        if nonce not in self._members:
            return False
        job, member = self._members[nonce]
        if job.id != hello.job_id:
            return False
        member.last_seen = now
        several = () if member.target else self.tree.side_by_side
        if several and (switch not in several or meant >= len(several)):
            return False
        if several and several[meant] != switch:
            to = self.tree.switches[several[meant]].address
            member.problem = (
                f"the HELLO of rank {member.rank} to switch {to.name} at {to.address} came through switch {switch}: "
                "are addresses or ports of switches exchanged in the controller's configuration?"
            )
            return False
        if job.grants or switch in member.addresses or (member.addresses and not several):
            return member.addresses.get(switch) == hello.address
        for other in job.members.values():
            if other.addresses.get(switch) == hello.address:
                member.problem = (
                    f"the HELLO of rank {member.rank} came from rank {other.rank}'s address "
                    f"{hello.address.host}:{hello.address.udp_port}"
                )
                return False
        member.addresses[switch] = hello.address
        member.problem = None
        self._grant_if_complete(job)
        return True

    def link_hellos_sent(self, switch: str) -> None:
        """Record that `switch` has sent its HELLOs of a period: too many that do not arrive are reported."""
        for child in self.links.sent(switch):
            self.version += 1
            parent, cause = self.tree.parent(child), self.links.problem(child)
            event(_log, logging.WARNING, "link silent", switch=child, parent=parent, cause=cause)

    def _link_hello(self, hello: Hello, switch: str) -> bool:
        child = self.links.arrived(hello, switch)
        if child is None:
            return False
        self.version += 1
        parent, link = self.tree.parent(child), self.links.link(child)
        if (fault := self.links.fault(child)) is not None:
            event(_log, logging.WARNING, "link wrong", switch=child, parent=parent, cause=fault)
        if link is None:
            return True
        if self.links.problem(child) is None:
            ports = {"uplink_port": link.parent.ingress_port, "parent_port": link.child.ingress_port}
            event(_log, logging.INFO, "link found", switch=child, parent=parent, **ports)
        for job in self._jobs.values():
            if used_link(job, child) not in (None, link):
                self._reset(job, f"the link from {child} to {parent} has changed", Cause.LINK_CHANGED)
            elif not job.grants:
                self._grant_if_complete(job)
        return True

    def lease(self, nonce: int) -> tuple[Job, Member] | None:
        """The member's job when that is ACTIVE, None while it forms. Raises MemberResetError with the reason."""
        job, member = self.member(nonce)
        return (job, member) if job.active else None

    def member(self, nonce: int) -> tuple[Job, Member]:
        """Return the member with this nonce. Raises MemberResetError with the reason if it is void."""
        if nonce not in self._members:
            raise MemberResetError(f"{self.void(nonce)}; join again")
        return self._members[nonce]

    def wait_started(self, nonce: int) -> None:
        """Record that a member waits for its lease.

        Raises MemberResetError, or InvalidRequestError if it does so too often.
        """
        job, member = self.member(nonce)
        if member.waiting >= _MOST_WAITS:
            raise InvalidRequestError(f"rank {member.rank} of job {job.name} waits {member.waiting} times already")
        member.waiting += 1
        member.disconnected_at = None

    def wait_ended(self, nonce: int, now: float, caller_disconnected: bool = False) -> None:
        """Record that the wait ended. If the caller has disconnected, its HELLO is void until it sends another."""
        if nonce in self._members:
            job, member = self._members[nonce]
            member.waiting -= 1
            member.last_seen = now
            if caller_disconnected and not job.active and member.waiting == 0:
                member.addresses.clear()
                member.disconnected_at = now
                self._withdraw(job)

    def heartbeat(
        self, nonce: int, now: float, slot_wait: WaitingSlot | None = None, usage: Usage | None = None
    ) -> str | None:
        """Record a heartbeat, the slot that the member waits for, and what it has counted.

        Return why its lease is void, else None.
        """
        self._count(nonce, usage)
        if (reason := self.void(nonce)) is not None:
            return reason
        member = self._members[nonce][1]
        member.last_seen = now
        member.disconnected_at = None
        member.slot_wait = slot_wait
        return None

    def void(self, nonce: int) -> str | None:
        """Return the reason why a lease is void, None while it is good."""
        if nonce in self._members:
            return None
        return self._former[nonce][0] if nonce in self._former else _UNKNOWN_MEMBER

    def watch_started(self, nonce: int) -> None:
        """Record that a member's watch is open; the member stays while it is. Raises MemberResetError."""
        _, member = self.member(nonce)
        member.watching += 1
        member.disconnected_at = None

    def watch_ended(self, nonce: int, now: float) -> None:
        """Record that a watch ended. Without another one soon the member is dropped."""
        if nonce in self._members:
            _, member = self._members[nonce]
            member.watching -= 1
            if not member.watching:
                member.last_seen = member.disconnected_at = now

    def leave(self, nonce: int, usage: Usage | None = None, *, finished: bool = False) -> None:
        """Drop a member at its own request; a former member may call it too.

        `usage` is what it has counted. `finished`: all ranks have agreed on the end, so this is no reset.
        """
        self._count(nonce, usage)
        if nonce in self._members:
            job, member = self._members[nonce]
            if finished:
                self._drop(job, member.rank, rank_finished(member.rank), Cause.FINISHED)
            else:
                self._drop(job, member.rank, rank_left(member.rank), Cause.LEFT)

    def _count(self, nonce: int, usage: Usage | None) -> None:
        """Record what a present or former member has counted, for what is kept of its job too."""
        if usage is None:
            return
        if nonce in self._members:
            job, member = self._members[nonce]
            job.count(member, usage)
        elif nonce in self._former:
            _, job, member = self._former[nonce]
            job.count(member, usage)
            if self._jobs.get(job.name) is job:
                self._save(job)
            else:
                with contextlib.suppress(StoreError):
                    self._store.save_ended(job)

    def reconnect_s(self, nonce: int) -> float:
        """Return how long a member may be without a connection."""
        return _reconnect_s(self._members[nonce][0]) if nonce in self._members else RECONNECT_S

    def sweep(self, now: float) -> None:
        """Drop the members without heartbeats for too long, or whose connection ended."""
        limit = self._heartbeat_timeout_s
        for job in self._jobs.values():
            for member in list(job.members.values()):
                if member.nonce not in self._members or member.waiting or member.watching:
                    continue
                if member.disconnected_at is not None and now - member.disconnected_at >= _reconnect_s(job):
                    reason = f"rank {member.rank} is gone: its connection to the controller ended"
                    self._drop(job, member.rank, reason, Cause.DISCONNECTED)
                elif now - member.last_seen >= limit:
                    self._drop(job, member.rank, f"rank {member.rank} sent no heartbeat for {limit:g} s", Cause.SILENT)
            if not job.grants:
                self._grant_if_complete(job)  # its links may have another problem now
        for name in list(self._unsaved):
            self._save(self._jobs[name])
        for job in list(self._jobs.values()):
            self._remove_if_unused(job, now)

    def _remove_if_unused(self, job: Job, now: float) -> None:
        if not job.ephemeral or job.members:
            job.empty_since = None
            return
        if job.empty_since is None:
            job.empty_since = now
        at_once = job.part_of or job.single_epoch  # the next epoch has other jobs for its shards
        wait_s = 0.0 if at_once else self._heartbeat_timeout_s
        if now - job.empty_since >= (wait_s if job.joined else NEVER_JOINED_S):
            try:
                self.remove(job.name)
            except StoreError as error:  # the next sweep tries again
                event(_log, logging.WARNING, "job not removed", job=job.name, cause=str(error))

    def holder(self, grant: Grant) -> Job | None:
        """Return the job that has this grant at present, or None."""
        job = self._jobs.get(grant.name)
        return job if job is not None and job.grants.get(grant.switch) == grant else None

    def installed(self, grant: Grant, now: float) -> None:
        """Record that the grant's switch holds its entries: with all others the job is ACTIVE, unless it has others."""
        job = self.holder(grant)
        if job is None:
            return
        job.installed.add(grant.switch)
        self.version += 1
        if job.installed.issuperset(job.grants):
            job.active = True
            for member in job.members.values():
                member.last_seen = now
            self._changed(job)
            self.grants_given += 1
            event(
                _log,
                logging.INFO,
                "job granted",
                job=job.name,
                epoch=grant.epoch,
                ranks=job.world_size,
                switches=len(job.grants),
            )

    def count_from(self, grant: Grant, counts: dict[str, Count]) -> None:
        """Record the switch's counters from before the job's first entries there, unless it had entries."""
        job = self.holder(grant)
        if job is not None and grant.switch not in job.counted_from:
            job.counted_from[grant.switch] = counts
            self._save(job)

    def install_failed(self, grant: Grant, reason: str) -> None:
        """Record that the switch refused the grant's entries."""
        job = self.holder(grant)
        if job is not None:
            self._reset(job, reason, Cause.SWITCH_REFUSED)

    def switch_lost(self, reason: str, kept: Collection[int] = (), switch: str = ONLY_SWITCH) -> None:
        """Record that `switch` has only the grants of these job ids: other ACTIVE jobs with grants there are reset.

        Members of FORMING jobs at this switch wait for new HELLOs: their ports may be others now. So do its links.
        A job with other switches side by side takes these in its next epoch, once `can_use` says that this one is away.
        """
        self.links.lost(switch)
        for job in self._jobs.values():
            if job.active and switch in job.grants and job.id in kept:
                continue
            counted = job.counted_from.pop(switch, None)  # the counters may begin at 0 again
            found = [member.addresses.pop(switch) for member in job.members.values() if switch in member.addresses]
            if job.active and switch in job.grants:
                self._reset(job, reason, Cause.SWITCH_LOST)
            elif switch in job.grants:
                self._withdraw(job)
            elif found:
                self._changed(job)
            elif counted is not None:
                self._save(job)

    def can_use(self, switch: str, *, usable: bool) -> None:
        """Record whether this controller can write to a switch: otherwise FORMING jobs take the others beside it."""
        (self._away.discard if usable else self._away.add)(switch)
        if switch not in self.tree.side_by_side:
            return
        for job in list(self._jobs.values()):
            if not usable and switch in job.grants and not job.active:
                self._withdraw(job)
            if not job.grants:
                self._grant_if_complete(job)

    def missing(self, job: Job) -> str:
        """Return why a job is not ACTIVE: its ranks, and the switches that wait for their HELLOs."""
        try:
            chosen = choose(job, self.tree, self._away)
        except PlacementError as error:
            job.problem = str(error)
            return job.missing({})
        if chosen:
            return job.missing({name: self.tree.switches[name].address.address for name in chosen})
        places: set[str] = set()
        for rank in job.without_hello(""):
            with contextlib.suppress(InvalidRequestError):  # it joined before the switches were configured anew
                places.update(place.address for place in self.tree.addresses(job.members[rank].target))
        return job.missing({"": " and ".join(sorted(places))})

    def _check_quotas(self, owner: str, slots: int) -> None:
        theirs = [job for job in self._jobs.values() if job.owner == owner]
        if len(theirs) >= self._quotas.jobs:
            raise QuotaExceededError(
                f"{owner} has {len(theirs)} jobs, the most that one owner may have (quotas.jobs); remove one"
            )
        held = sum(job.slots.count for job in theirs)
        if self._quotas.slots and held + slots > self._quotas.slots:
            raise QuotaExceededError(
                f"{owner} has {held} slots and asks for {slots}; one owner may have {self._quotas.slots} (quotas.slots)"
            )

    def _free_id(self) -> int:
        """Return the next free id; ids are reused as late as possible, since counters are kept by id."""
        used = {job.id for job in self._jobs.values()}
        for step in range(MAX_JOBS):
            job_id = (self._last_id + step) % MAX_JOBS + 1
            if job_id not in used:
                return job_id
        raise SwitchFullError(f"there are {MAX_JOBS} jobs, the most a switch can have; remove one")

    def _fresh_nonce(self) -> int:
        while True:
            nonce = self._draw_nonce() % (1 << MEMBER_BITS)
            if nonce not in self._members and nonce not in self._former:
                return nonce

    def _grant_if_complete(self, job: Job) -> None:
        job.problem = None
        if len(job.members) < job.world_size:
            return
        try:
            chosen = choose(job, self.tree, self._away)
            if any(map(job.without_hello, chosen or [""])):
                return
            levels = place(job, chosen, self.tree, self.links)
        except PlacementError as error:
            job.problem = str(error)
            return
        try:
            in_use = {grant.epoch for other in self._jobs.values() for grant in other.grants.values()}
            epoch = self._store.draw_epoch(job.slots, in_use, tuple(levels))
        except ControllerFailedError as error:
            self._reset(job, str(error), Cause.NO_EPOCH)
            return
        job.installed.clear()
        job.grants = make_grants(job, epoch, levels, self.links, self._draw_secret)
        self.version += 1

    def _drop(self, job: Job, rank: int, reason: str, cause: Cause) -> None:
        """Drop one rank. That resets an ACTIVE job; a FORMING one keeps the others."""
        if job.active:
            self._reset(job, reason, cause)
        else:
            self._remove_member(job, job.members.pop(rank), reason)
            self._withdraw(job)
            event(_log, cause.level, "rank dropped", job=job.name, rank=rank, cause=reason)

    def _withdraw(self, job: Job) -> None:
        """Take back grants that no rank has received yet."""
        if not job.active:
            job.grants = {}
            job.installed.clear()
        self._changed(job)

    def _reset(self, job: Job, reason: str, cause: Cause) -> None:
        """Drop every member with `reason`; the job forms anew, in another epoch."""
        finished = cause is Cause.FINISHED
        if job.active and not finished:
            self.resets[cause] += 1
            if cause is not Cause.REMOVED:
                job.resets[cause.value] = job.resets.get(cause.value, 0) + 1
        if job.members:
            what = "job finished" if finished else "job reset"
            event(_log, cause.level, what, job=job.name, cause=reason, epoch=job.epoch, ranks=len(job.members))
        for member in job.members.values():
            self._remove_member(job, member, reason)
        job.members.clear()
        job.grants = {}
        job.installed.clear()
        job.active = False
        if cause not in (Cause.FINISHED, Cause.REMOVED):
            job.last_reset = reason
        self._changed(job)

    def _changed(self, job: Job) -> None:
        """Record that the desired entries or an answer have changed."""
        self.version += 1
        if self._jobs.get(job.name) is job:
            self._save(job)

    def _save(self, job: Job) -> None:
        """Save a job; where that fails, at the next sweep."""
        try:
            self._store.save(job)
            self._unsaved.discard(job.name)
        except StoreError as error:
            if job.name not in self._unsaved:
                event(_log, logging.ERROR, "job unsaved", job=job.name, cause=str(error))
            self._unsaved.add(job.name)

    def _remove_member(self, job: Job, member: Member, reason: str) -> None:
        del self._members[member.nonce]
        self._former[member.nonce] = reason, job, member
        while len(self._former) > _MOST_FORMER:
            self._former.popitem(last=False)
