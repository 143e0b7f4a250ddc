"""The gRPC servicer of the job service: requests become events of the registry, its answers replies.

It runs on grpc.aio. A worker may wait minutes for its lease, and 32 of them (or 255 jobs of 32) must not use
up a pool of threads that heartbeats need too: here each call is a coroutine. And since
everything that touches the registry runs on the one event loop, the registry needs no locks.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any, Final, TypeVar

import grpc
import grpc.aio

from p4reduce_contracts.jobs import jobs_pb2
from p4reduce_contracts.jobs.answers import Count, Usage, WaitingSlot
from p4reduce_contracts.jobs.errors import (
    ControllerStoppedError,
    ForbiddenError,
    InvalidRequestError,
    JobServiceError,
    LeaseTimeoutError,
    StoreError,
    SwitchAwayError,
    UnknownJobError,
    name_of,
    rounded,
)
from p4reduce_contracts.jobs.lease import Level
from p4reduce_controller.config import ControllerConfig
from p4reduce_controller.registry import tokens
from p4reduce_controller.registry.job import Job
from p4reduce_controller.registry.registry import Registry
from p4reduce_controller.switches.reconciler import Notifier, SwitchCounters, Switches
from p4reduce_runtime.logs import RateLimitedLog
from p4reduce_runtime.security import is_local_peer, peer_name, peer_owner, peer_roles

_log = logging.getLogger(__name__)

_LONGEST_WAIT_S = 86400.0
_PART_BYTES: Final = 1 << 20
"""Bytes of a message of an answer in parts; one line of its list may be longer."""

ReplyT = TypeVar("ReplyT", jobs_pb2.ListJobsReply, jobs_pb2.StatsReply)

Context = grpc.aio.ServicerContext[Any, Any]


class JobsServicer:
    """The methods of `service Jobs` in jobs.proto. They raise JobServiceErrors, which request_guard.py sends."""

    def __init__(
        self,
        registry: Registry,
        switches: Switches,
        settings: ControllerConfig,
        clock: Callable[[], float],
        notifier: Notifier,
        sweep: Callable[[], None],
        roles: frozenset[str],
    ) -> None:
        """`roles` are those of callers that are answered; empty: of all."""
        self._registry = registry
        self._switches = switches
        self._settings = settings
        self._clock = clock
        self._notifier = notifier
        self._sweep = sweep
        self._roles = roles
        self._stopping = False
        self._rate_limited_log = RateLimitedLog(_log)
        self.refusals: Counter[tuple[str, str]] = Counter()
        """Refused calls by call and reason."""

    def check_peer(self, context: Context) -> None:
        """Raise ForbiddenError unless the caller has a role that is answered."""
        if self._roles and not self._roles & peer_roles(context):
            raise ForbiddenError(
                f"the certificate of {peer_name(context)} names none of {', '.join(sorted(self._roles))}: use a "
                "worker's (`p4reduce certs add` makes one)"
            )

    def refused(self, call: str, error: JobServiceError, context: Context) -> None:
        """Count a refused call, and log it once in a while for each call and reason."""
        reason = name_of(error)
        self.refusals[call, reason] += 1
        self._rate_limited_log.event(
            logging.ERROR if isinstance(error, StoreError) else logging.INFO,  # a full disk
            "call refused",
            f"{call} {reason}",
            call=call,
            reason=reason,
            caller=peer_name(context),
            detail=str(error),
        )

    def stop(self) -> None:
        """End the calls that wait, because the controller ends."""
        self._stopping = True
        self._notifier.notify()

    async def CreateJob(self, request: jobs_pb2.CreateJobRequest, context: Context) -> jobs_pb2.Job:
        """Create a job. Over TLS, where callers may belong to other users, it is always private."""
        drawn = tokens.draw() if request.private or self._roles else None
        job = self._registry.create(
            request.name,
            request.world_size,
            request.slots or None,
            owner=peer_owner(context),
            tokens=drawn,
            ephemeral=request.ephemeral,
            part_of=request.part_of,
            switches=request.switches,
            single_epoch=request.single_epoch,
            created=time.time(),
        )
        reply = self._job(job, shown=True)
        if drawn is not None:
            reply.owner_token, reply.member_token = drawn.owner, drawn.member
        return reply

    async def ListJobs(
        self, request: jobs_pb2.ListJobsRequest, context: Context
    ) -> AsyncIterator[jobs_pb2.ListJobsReply]:
        """All jobs, or those that have ended."""
        slots, every = self._registry.slots, self._registry.jobs()
        if request.ended:
            jobs = [self._job(job, self._may_see(job, "", context), at) for at, job in self._registry.ended()]
        else:
            names = {job.name for job in every}
            jobs = [self._job(job, self._may_see(job, "", context)) for job in every if job.part_of not in names]
        for part in _parts(jobs_pb2.ListJobsReply(slots=slots.slots, free_slots=slots.free), jobs):
            yield part

    async def GetJob(self, request: jobs_pb2.GetJobRequest, context: Context) -> jobs_pb2.Job:
        """One job; the last one of that name that has ended, where there is none."""
        ended = 0.0
        try:
            job = self._registry.get(request.name)
        except UnknownJobError:
            if not request.name or not (found := self._registry.ended(request.name)):
                raise
            ended, job = found[0]
        return self._job(job, self._may_see(job, request.token, context), ended)

    async def RemoveJob(self, request: jobs_pb2.RemoveJobRequest, context: Context) -> jobs_pb2.RemoveJobReply:
        """Remove a job; answers when the switch has none of its entries."""
        job = self._registry.get(request.name)
        if not tokens.opens(request.token, job.owner_lock):
            raise ForbiddenError(
                f"job {job.name} is private: to remove it takes its owner's token (--token)" + _not(request.token)
            )
        self._registry.remove(request.name)
        self._notifier.notify()
        await self._switches.wait_synced()
        return jobs_pb2.RemoveJobReply()

    async def Join(self, request: jobs_pb2.JoinRequest, context: Context) -> jobs_pb2.JoinTicket:
        """Join a job as one rank."""
        job = self._registry.get(request.job)
        if not tokens.opens(request.token, job.member_lock, job.owner_lock):
            raise ForbiddenError(
                f"job {job.name} is private: to join it takes its token (P4REDUCE_TOKEN, or token=...)"
                + _not(request.token)
            )
        switches = self._registry.tree.addresses(request.switch)
        member = self._registry.join(
            request.job,
            request.rank,
            request.world_size,
            self._clock(),
            request.run_id,
            former=request.former,
            owner=peer_owner(context),
            target=request.switch,
            host=request.host,
        )
        self._notifier.notify()
        geometry = self._registry.geometry
        return jobs_pb2.JoinTicket(
            nonce=member.nonce,
            job_id=job.id,
            switches=[jobs_pb2.SwitchAddress(**asdict(switch)) for switch in switches],
            columns=geometry.columns,
            block_words=geometry.block_words,
            hello_interval_s=self._settings.hello_interval_s,
        )

    async def WaitLease(self, request: jobs_pb2.WaitLeaseRequest, context: Context) -> jobs_pb2.Lease:
        """Wait for the lease until the caller's deadline; a call that is cancelled ends the wait."""
        timeout_s = request.timeout_s
        if math.isnan(timeout_s) or not 0 <= timeout_s <= _LONGEST_WAIT_S:
            raise InvalidRequestError(f"timeout_s must be between 0 and {_LONGEST_WAIT_S:g}, not {timeout_s}")
        self._registry.wait_started(request.nonce)
        self._notifier.notify()
        disconnected = False
        try:
            async with asyncio.timeout(timeout_s):
                return await self._lease(request.nonce)
        except TimeoutError:
            raise LeaseTimeoutError(self._too_late(request.nonce, timeout_s)) from None
        except asyncio.CancelledError:
            disconnected = True
            raise
        finally:
            note = partial(self._registry.wait_ended, request.nonce, self._clock(), disconnected)
            self._connection_ended(request.nonce, note)
            self._notifier.notify()

    async def Heartbeat(self, request: jobs_pb2.HeartbeatRequest, context: Context) -> jobs_pb2.HeartbeatReply:
        """Record a heartbeat."""
        reason = self._registry.heartbeat(request.nonce, self._clock(), _slot_wait(request), _usage(request))
        return jobs_pb2.HeartbeatReply(reset=reason is not None, reason=reason or "")

    async def Watch(self, request: jobs_pb2.WatchRequest, context: Context) -> AsyncIterator[jobs_pb2.WatchEvent]:
        """Send a member its reset; the call ends with its connection."""
        nonce = request.nonce
        reason = self._registry.heartbeat(nonce, self._clock())
        if reason is None:
            self._registry.watch_started(nonce)
            try:
                yield jobs_pb2.WatchEvent()
                while not self._stopping and (reason := self._registry.void(nonce)) is None:
                    await self._notifier.wait()
            finally:
                self._connection_ended(nonce, partial(self._registry.watch_ended, nonce, self._clock()))
        if reason is not None:
            yield jobs_pb2.WatchEvent(reset=True, reason=reason)

    def _connection_ended(self, nonce: int, note: Callable[[], None]) -> None:
        """`note` it, and check later whether the member has reconnected; not when the controller itself ends."""
        if not self._stopping:
            note()
            asyncio.get_running_loop().call_later(self._registry.reconnect_s(nonce), self._sweep)

    async def Leave(self, request: jobs_pb2.LeaveRequest, context: Context) -> jobs_pb2.LeaveReply:
        """Drop a member at its own request."""
        self._registry.leave(request.nonce, _usage(request), finished=request.finished)
        self._notifier.notify()
        return jobs_pb2.LeaveReply()

    async def Stats(self, request: jobs_pb2.StatsRequest, context: Context) -> AsyncIterator[jobs_pb2.StatsReply]:
        """The counters of the switches that answer."""
        jobs = [self._registry.get(request.job)] if request.job else self._registry.jobs()
        found = await self._switches.counters(jobs)
        away = {switch: error for switch, error in found.items() if isinstance(error, SwitchAwayError)}
        counted = {switch: counters for switch, counters in found.items() if isinstance(counters, SwitchCounters)}
        if not counted:
            raise SwitchAwayError("; ".join(map(str, away.values())))
        reply, lines = jobs_pb2.StatsReply(), []
        for job in jobs:
            hosts = len(set(filter(None, job.hosts.values())))
            line = partial(jobs_pb2.JobStats, name=job.name, id=job.id, part_of=job.part_of, hosts=hosts)
            if not job.counted_from:  # no entries yet: nothing was counted
                lines.append(line())
            for switch, counters in counted.items():
                if job.name in counters.jobs:
                    counts: dict[str, Any] = {name: _count(count) for name, count in counters.jobs[job.name].items()}
                    lines.append(line(switch=switch, **counts))
        for switch, counters in counted.items():
            for reason, count in counters.drops.items():
                reply.drops.add(reason=reason, count=_count(count), switch=switch)
        for switch, error in away.items():
            reply.away.add(switch=switch, problem=str(error))
        for part in _parts(reply, lines):
            yield part

    async def ListSwitches(self, request: jobs_pb2.ListSwitchesRequest, context: Context) -> jobs_pb2.ListSwitchesReply:
        """All switches."""
        jobs, links = self._registry.jobs(), self._registry.links
        reply = jobs_pb2.ListSwitchesReply()
        for name, switch in self._registry.tree.switches.items():
            line = reply.switches.add(p4runtime=switch.config.p4runtime, **asdict(switch.address))
            line.problem = self._switches.by_name[name].unavailable_reason() or ""
            if switch.config.parent is not None:
                line.parent = switch.config.parent
                line.uplink_port = switch.config.uplink_port or 0
                line.parent_port = links.parent_port(name) or 0
                line.link_problem = links.problem(name) or ""
            line.ranks = sum(name in member.addresses for job in jobs for member in job.members.values())
            line.jobs = sum(name in job.grants for job in jobs)
        return reply

    async def _lease(self, nonce: int) -> jobs_pb2.Lease:
        while (held := self._registry.lease(nonce)) is None:
            if self._stopping:
                raise ControllerStoppedError("the controller was stopped")
            await self._notifier.wait()
        job, member = held
        paths, switches = job.paths(member.rank), self._registry.tree.switches
        return jobs_pb2.Lease(
            job_id=job.id,
            name=job.name,
            epoch=job.epoch,
            rank=member.rank,
            world_size=job.world_size,
            slot_count=job.slots.count * len(paths),
            columns=self._registry.geometry.columns,
            block_words=self._registry.geometry.block_words,
            heartbeat_interval_s=self._settings.heartbeat_interval_s,
            switches=[
                jobs_pb2.LeasedSwitch(host=at.host, port=at.port, secret=secret, levels=map(_level, levels))
                for secret, levels in paths
                for at in (switches[levels[0].switch].address,)
            ],
            private=job.private,
            first_round=job.first_round,
        )

    def _too_late(self, nonce: int, timeout_s: float) -> str:
        job, _ = self._registry.member(nonce)
        reason = self._switches.unavailable_reason()
        missing = self._registry.missing(job)
        return f"job {job.name} was not complete within {rounded(timeout_s)} s: {missing}" + (
            f"; {reason}" if reason else ""
        )

    def _may_see(self, job: Job, token: str, context: Context) -> bool:
        """Whether the caller may know the epoch and the addresses, with which frames could be forged.

        A private job takes one of its tokens; of another one, callers on this machine may.
        """
        if job.private:
            return tokens.opens(token, job.owner_lock, job.member_lock)
        return is_local_peer(context)

    def _job(self, job: Job, shown: bool, ended: float = 0.0) -> jobs_pb2.Job:
        now = self._clock()
        reply = jobs_pb2.Job(
            name=job.name,
            id=job.id,
            world_size=job.world_size,
            first_slot=job.slots.base,
            slots=job.slots.count,
            state="ENDED" if ended else job.state,
            epoch=job.epoch if shown else 0,
            hidden=not shown,
            private=job.private,
            ephemeral=job.ephemeral,
            last_reset=job.last_reset or "",
            run_id=job.run_id,
            tree=map(_level, job.tree if shown else ()),
            usage=jobs_pb2.Usage(**asdict(job.usage)),
            hosts=[job.hosts.get(str(rank), "") for rank in range(job.world_size)] if shown and job.hosts else (),
            resets=job.resets,
            part_of=job.part_of,
            switches=job.switches,
            shards=[] if ended else [self._job(shard, shown) for shard in self._registry.shards(job.name)],
            created=job.created,
            ended=ended,
            missing="" if ended or job.active or (job.private and not shown) else self._registry.missing(job),
        )
        for rank, member in sorted(job.members.items()):
            line = reply.members.add(rank=rank, silent_s=max(0.0, now - member.last_seen))
            for switch, address in member.addresses.items() if shown else ():
                line.addresses.add(
                    switch=switch,
                    host=address.host,
                    port=address.udp_port,
                    ingress_port=address.ingress_port,
                    mac=address.mac_text,
                )
            if member.slot_wait is not None and shown:
                line.slot_wait.CopyFrom(jobs_pb2.WaitingSlot(**asdict(member.slot_wait)))
        return reply


def _parts(reply: ReplyT, jobs: list[Any]) -> Iterator[ReplyT]:
    """Yield the reply and the lines of its list `jobs`, in messages of about `_PART_BYTES`."""
    size = 0
    for job in jobs:
        if size and size + job.ByteSize() > _PART_BYTES:
            yield reply
            reply, size = type(reply)(), 0
        reply.jobs.append(job)
        size += job.ByteSize()
    yield reply


def _slot_wait(request: jobs_pb2.HeartbeatRequest) -> WaitingSlot | None:
    """Return what a member waits for by its heartbeat; None for nothing, and for an invalid time."""
    wait = request.slot_wait
    if not request.HasField("slot_wait") or not 0 <= wait.waited_s < math.inf:
        return None
    return WaitingSlot(wait.slot, wait.round, wait.missing, wait.waited_s, wait.in_flight, wait.level)


def _usage(request: jobs_pb2.HeartbeatRequest | jobs_pb2.LeaveRequest) -> Usage | None:
    """Return what a member has counted; None where it does not say."""
    said = request.usage
    if not request.HasField("usage"):
        return None
    return Usage(said.collectives, said.bytes_up, said.bytes_down, said.retransmissions)


def _count(count: Count) -> jobs_pb2.Count:
    return jobs_pb2.Count(packets=count.packets, bytes=count.bytes)


def _not(token: str) -> str:
    """Return an error's words about a refused token; "" where there was no token."""
    return ", and the token given is not that" if token else ""


def _level(level: Level) -> jobs_pb2.Level:
    children = (jobs_pb2.Child(ranks=ranks) for ranks in level.children)
    return jobs_pb2.Level(switch=level.switch, children=children, parent=level.parent or "")
