"""The checks of `p4reduce doctor`, from certificates to the link that limits sums; each relies on those before it."""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import secrets
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs import Int32
from p4reduce.communicator import Communicator
from p4reduce.doctor import bottleneck
from p4reduce.errors import GeometryMismatchError, JoinError, P4ReduceError
from p4reduce.membership.join import join, run_id
from p4reduce.paths.gso import DAMAGED_COLLECTIVES
from p4reduce.protocol.deadline import IP_UDP_BYTES
from p4reduce.protocol.timing import MAX_PTO_S
from p4reduce.transport import BUFFER_BYTES, sockets_of
from p4reduce_contracts.jobs.answers import JobInfo, JoinTicket
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import JobServiceError
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.ranks import name_children, name_ranks
from p4reduce_contracts.wire.geometry import JUMBO
from p4reduce_runtime.environment import P4REDUCE_INSECURE
from p4reduce_runtime.security import Security, check_dialling, from_environment, is_loopback
from p4reduce_runtime.settings import ConfigError

_log = logging.getLogger(__name__)

CERTIFICATES: Final = "certificates"
CONTROLLER: Final = "controller"
JOB: Final = "job"
BUFFERS: Final = "socket buffers"
HELLO: Final = "HELLO"
ROUND_TRIPS: Final = "round trips"
SUM: Final = "exact sum"
HOSTS: Final = "hosts"
FULL_FRAMES: Final = "full frames"
BATCHES: Final = "batches"
BOTTLENECK: Final = "bottleneck"
_BEFORE_SUMS: Final = (CERTIFICATES, CONTROLLER, JOB, HELLO, BUFFERS, ROUND_TRIPS)
CHECKS: Final = (*_BEFORE_SUMS, SUM, HOSTS, FULL_FRAMES, BATCHES, BOTTLENECK)

EXPIRES_SOON: Final = datetime.timedelta(days=14)
SLOW_ANSWER_S: Final = 1.0
ROUNDS: Final = 100
REPEATS_WARNING: Final = 0.02
"""The share of repeated frames from which the path is called lossy."""
OWN_SLOTS: Final = 64
"""Slots of the doctor's own job, or half of what is free: as many full frames as the longest GSO datagram holds."""
LEAST_FRAMES: Final = 64
"""Full frames that a socket buffer must hold: the answers to a usual window come all at once."""
FULL_BLOCKS: Final = 64
"""Blocks of the sum in full frames."""
BATCH_SUMS: Final = 16
"""Sums of which each fills all slots several times."""
DAMAGES: Final = ("CHECKSUM", "HEADER_CHECKSUM", "TRUNCATED")
"""The reasons for which a switch drops frames damaged on the way; others are met by other programs' frames too."""
_DAMAGE_ADVICE: Final = "look for a faulty host, cable or switch"
_GSO_ADVICE: Final = (
    "update kernels 7.0.0 to 7.1.4 and the network card's firmware, or set P4REDUCE_SEGMENTATION=off on the workers, "
    "and start the switch with --gso off"
)


class Status(StrEnum):
    """The outcome of a check."""

    OK = "ok"
    WARNING = "warning"
    """It works, and will be slow or break later."""
    FAILED = "failed"
    SKIPPED = "skipped"
    """It could not be checked."""


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    status: Status
    found: str
    advice: str = ""
    """The change to make; "" when nothing is wrong, or `found` says it already."""


@dataclass(frozen=True)
class RankSpec:
    """The job and rank to take part as."""

    job: str
    rank: int
    world_size: int


@dataclass(frozen=True)
class _Access:
    """How this worker reaches its controller, and joins jobs."""

    address: str
    security: Security | None
    timeout_s: float
    switch: str

    def client(self, token: str | None) -> JobClient:
        return JobClient(self.address, security=self.security, token=token)

    def join(self, spec: RankSpec, token: str | None) -> Communicator:
        """Raises JoinError."""
        return join(
            spec.job,
            rank=spec.rank,
            world_size=spec.world_size,
            controller=self.address,
            timeout_s=self.timeout_s,
            collective_timeout_s=self.timeout_s,
            security=self.security,
            token=token,
            switch=self.switch,
        )

    @contextlib.contextmanager
    def own_job(self, client: JobClient, slots: int) -> Iterator[JobInfo]:
        """Make a job of one rank, of half of the free slots at most, and remove it at the end. JobServiceError."""
        slots = max(1, min(slots, client.list_jobs().free_slots // 2))
        made = client.create_job(f"doctor-{secrets.token_hex(4)}", 1, slots)
        with self.client(made.owner_token or None) as owner:
            try:
                yield made
            finally:
                _remove(owner, made.name)

    @contextlib.contextmanager
    def alone(self, client: JobClient, slots: int) -> Iterator[Communicator]:
        """Join a job of this rank alone. Raises JobServiceError or JoinError."""
        with self.own_job(client, slots) as made:
            comm = self.join(RankSpec(made.name, 0, 1), made.owner_token)
            with contextlib.closing(comm):
                yield comm


def run_checks(
    address: str, spec: RankSpec | None = None, *, token: str | None = None, timeout_s: float = 10.0, switch: str = ""
) -> list[Check]:
    """Check everything between this worker and its switch, through the controller at `address` (HOST:PORT).

    Without a `spec` it makes a job of one rank, and removes it at the end. With one, run the checks on every rank
    of that job at the same time; `token` is the job's, if it is private. `timeout_s` bounds the wait for the other
    ranks, and each collective. `switch`: as in `join`. Returns all of `CHECKS` in their order; those behind one that
    failed may be SKIPPED.
    """
    found = list(_checks(address, spec, token, timeout_s, switch))
    done = {check.name: check.status for check in found}
    failed = next((name for name, status in done.items() if status is Status.FAILED), "")
    found += [Check(name, Status.SKIPPED, f"{failed} has to be fixed first") for name in CHECKS if name not in done]
    return sorted(found, key=lambda check: CHECKS.index(check.name))


def _checks(address: str, spec: RankSpec | None, token: str | None, timeout_s: float, switch: str) -> Iterator[Check]:
    try:
        security = from_environment(os.environ)
        check_dialling(address, security, insecure=P4REDUCE_INSECURE.read())
    except ConfigError as error:
        yield Check(CERTIFICATES, Status.FAILED, str(error), "see docs/security.md, Certificates")
        return
    yield _certificates(address, security)
    access = _Access(address, security, timeout_s, switch)
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(access.client(token))
        yield (controller := _controller(client))
        if controller.status is Status.FAILED:
            return
        if spec is None:
            try:
                made = stack.enter_context(access.own_job(client, OWN_SLOTS))
            except JobServiceError as error:
                advice = (
                    f"free {OWN_SLOTS} slots (`p4reduce job remove`), or be examined in a job that is there, with --job"
                )
                yield Check(JOB, Status.FAILED, f"no job of the doctor's own can be made: {error}", advice)
                return
            spec, token = RankSpec(made.name, 0, 1), made.owner_token or token
            client = stack.enter_context(access.client(token))
            yield Check(JOB, Status.OK, f"made {made.name} for one rank and {made.slots} slots, removed at the end")
        else:
            yield (job := _job(client, spec))
            if job.status is Status.FAILED:
                return
        try:
            ticket = client.join(spec.job, spec.rank, spec.world_size, run_id(os.environ), switch=switch)
            client.leave(ticket.nonce)
        except JobServiceError as error:
            yield Check(HELLO, Status.FAILED, f"the controller refuses to let this rank join: {error}")
            return
        yield from _collectives(access, client, spec, ticket, token)


def _certificates(address: str, security: Security | None) -> Check:
    if security is None and is_loopback(address):
        return Check(CERTIFICATES, Status.OK, f"none: {address} is on this machine, where none is required")
    if security is None:
        text = f"none: hosts on the way to {address} can read and change what is sent"
        advice = "make some with `p4reduce certs init` and name them in P4REDUCE_CA, P4REDUCE_CERT and P4REDUCE_KEY"
        return Check(CERTIFICATES, Status.WARNING, text, advice)
    ends, file = _first_end(security)
    left = ends - datetime.datetime.now(datetime.UTC)
    text = f"valid; {file} is the first to run out, on {ends:%Y-%m-%d}"
    if left < EXPIRES_SOON:
        advice = "make others with `p4reduce certs init` before that day"
        return Check(CERTIFICATES, Status.WARNING, f"{text}, {left.days} days from now", advice)
    return Check(CERTIFICATES, Status.OK, text)


def _first_end(security: Security) -> tuple[datetime.datetime, str]:
    """Return when the first certificate runs out, and in which file it is; `security` was checked."""
    from cryptography import x509

    return min(
        (certificate.not_valid_after_utc, str(file))
        for file in (security.ca, security.certificate)
        for certificate in x509.load_pem_x509_certificates(file.read_bytes())
    )


def _controller(client: JobClient) -> Check:
    begun = time.monotonic()
    try:
        jobs = client.list_jobs()
    except JobServiceError as error:
        return Check(CONTROLLER, Status.FAILED, str(error), "name the right one with --controller HOST:PORT")
    took_s = time.monotonic() - begun
    slots = f"{jobs.free_slots} of {jobs.slots} slots free"
    text = f"{client.address} answered in {_ms(took_s)}; {len(jobs.jobs)} jobs, {slots}"
    if took_s > SLOW_ANSWER_S:
        advice = "look for a busy machine or a slow network: heartbeats that take long end jobs"
        return Check(CONTROLLER, Status.WARNING, text, advice)
    return Check(CONTROLLER, Status.OK, text)


def _job(client: JobClient, spec: RankSpec) -> Check:
    try:
        info = client.get_job(spec.job)
    except JobServiceError as error:
        return Check(JOB, Status.FAILED, str(error), f"`p4reduce job create {spec.job}` makes one")
    if info.state == "ENDED":
        return Check(JOB, Status.FAILED, f"{spec.job} was removed", f"`p4reduce job create {spec.job}` makes another")
    if info.state == "ACTIVE":
        text = f"{spec.job} runs, with {len(info.members)} ranks: joining it would reset the job"
        return Check(JOB, Status.FAILED, text, "wait for its end, or be examined in another job of the same size")
    if info.world_size != spec.world_size:
        advice = f"run one doctor a rank, each with --world-size {info.world_size}"
        return Check(JOB, Status.FAILED, f"{spec.job} has {info.world_size} ranks, not {spec.world_size}", advice)
    if spec.rank in {member.rank for member in info.members}:
        text = f"rank {spec.rank} of {spec.job} is taken by a worker that waits for the others"
        return Check(JOB, Status.FAILED, text, "end it first, or be examined in another job of the same size")
    return Check(JOB, Status.OK, f"{spec.job} is free, with {info.world_size} ranks and {info.slots} slots")


def _remove(client: JobClient, name: str) -> None:
    try:
        client.remove_job(name)
    except JobServiceError as error:
        _log.warning("the job %s stays, remove it with `p4reduce job remove %s`: %s", name, name, error)


def _buffers(comm: Communicator) -> Check:
    frame = comm.lease.geometry.max_frame_bytes
    granted = min((udp.buffer_bytes for udp in sockets_of(comm.over_switch.transport)), key=min)
    least = min(granted)
    text = f"receive {granted[0]} B, send {granted[1]} B granted; {BUFFER_BYTES} B needed"
    advice = f"sysctl -w net.core.rmem_max={BUFFER_BYTES} net.core.wmem_max={BUFFER_BYTES}"
    if least < LEAST_FRAMES * frame:
        return Check(BUFFERS, Status.FAILED, f"{text}: {least // frame} full frames fit", advice)
    return Check(BUFFERS, Status.WARNING if least < BUFFER_BYTES else Status.OK, text, advice * (least < BUFFER_BYTES))


def _collectives(
    access: _Access, client: JobClient, spec: RankSpec, ticket: JoinTicket, token: str | None
) -> Iterator[Check]:
    drops, addresses = _drops(client), ", ".join(switch.address for switch in ticket.switches)
    begun = time.monotonic()
    try:
        comm = access.join(spec, token)
    except JoinError as error:
        advice = f"see that the switch runs and UDP gets through to {addresses} (firewalls), "
        advice += "and that all ranks are examined at the same time"
        if isinstance(error, GeometryMismatchError):
            advice = "give the controller a pipeline that this version supports (`pipeline` in its TOML file)"
        yield Check(HELLO, Status.FAILED, f"{error}{_since(drops, _drops(client))}", advice)
        return
    with contextlib.closing(comm):
        lease = comm.lease
        text = f"rank {lease.rank} of {lease.world_size} has its lease after {_ms(time.monotonic() - begun)}"
        yield Check(HELLO, Status.OK, f"{text}: epoch {lease.epoch}, {lease.slot_count} slots; {_tree(lease)}")
        hosts: list[tuple[int, ...]] = []
        both_ways = f"UDP to {addresses}, or what comes back from there"
        for name, look, advice in (
            (BUFFERS, _buffers, ""),
            (ROUND_TRIPS, _round_trips, f"HELLO has passed: look for a firewall that stops other {both_ways}"),
            (SUM, _exact_sum, "do not train like this: look for a faulty host, cable, switch or pipeline"),
            (HOSTS, partial(_hosts, hosts), "set P4REDUCE_HOSTS=off on all ranks"),
            (FULL_FRAMES, _full_frames, ""),
            (BATCHES, _batches, f"examine with P4REDUCE_SEGMENTATION=off: if that passes, {_GSO_ADVICE}"),
            (BOTTLENECK, partial(_bottleneck, hosts, access, client), "see that all ranks are examined at once"),
        ):
            try:
                check = look(comm)
            except P4ReduceError as error:
                text = f"{error}{_since(drops, _drops(client))}"
                yield Check(name, Status.FAILED, text, advice or _mtu_advice(comm))
                return
            before, drops = drops, _drops(client)
            if (damaged := _since(before, drops, DAMAGES)) and check.status in (Status.OK, Status.WARNING):
                what = [check.advice, _DAMAGE_ADVICE, advice if name == BATCHES and not check.advice else ""]
                text = "; ".join(filter(None, what))
                check = replace(check, status=Status.WARNING, found=check.found + damaged, advice=text)
            yield check


def _tree(lease: Lease) -> str:
    """Return which switches sum for this rank: side by side, or from its own to the root with what each adds up."""
    if len(lease.switches) > 1:
        return f"switches {', '.join(switch.name for switch in lease.switches)}, side by side"
    return ", ".join(
        f"switch {level.switch} sums {name_children(level.children)}" for level in lease.switches[0].levels
    )


def _round_trips(comm: Communicator) -> Check:
    """Sum one block again and again: two rounds each, of which the second teaches the timeouts how long the path is."""
    before = comm.stats.copy()
    block = np.ones(comm.lease.block_words, np.int32)
    times = []
    for _ in range(ROUNDS // 2):
        begun = time.monotonic()
        comm.all_reduce_segments([Int32(block)], dense=True)
        times.append((time.monotonic() - begun) / 2)
    spent, median = comm.stats - before, statistics.median(times)
    text = (
        f"{ROUNDS} rounds of {_ms(min(times))} to {_ms(max(times))}, median {_ms(median)}; a frame is repeated after "
        f"{_ms(comm.over_switch.round_trip.timeout_s)}, and {spent.retransmissions} of {spent.frames_up} were"
    )
    if median > MAX_PTO_S:
        longest = _ms(MAX_PTO_S)
        advice = f"timeouts end at {longest}, so every frame will be repeated: bring the switch nearer"
        return Check(ROUND_TRIPS, Status.WARNING, text, advice)
    if spent.retransmissions > REPEATS_WARNING * spent.frames_up:
        advice = "look for loss on the way, a busy machine, or other ranks that are slow"
        return Check(ROUND_TRIPS, Status.WARNING, text, advice)
    return Check(ROUND_TRIPS, Status.OK, text)


def _exact_sum(comm: Communicator) -> Check:
    """Sum one block of int32, whose frames are small: what fails here is not their size."""
    wrong = _wrong_integers(comm, blocks=1)
    if wrong:
        advice = "do not train like this: look for a switch program or a host that changes words"
        return Check(SUM, Status.FAILED, f"{wrong} of {comm.lease.block_words} int32 sums are wrong", advice)
    return Check(SUM, Status.OK, f"{comm.lease.block_words} int32 of {comm.world_size} rank(s), every bit right")


def _hosts(found_hosts: list[tuple[int, ...]], comm: Communicator) -> Check:
    """Find the ranks of each host, and have each rank send for itself from now on: what follows examines links."""
    found, hosts = comm.find_hosts(), comm.hosts
    comm.hosts = None
    found_hosts += [(rank,) for rank in range(comm.world_size)] if found is None else found.plan.hosts
    if found is None:
        problem = "there is one" if hosts is None else hosts.problem or "no two ranks can share memory"
        text = f"each rank sends for itself: {problem}"
    else:
        plan = found.plan
        parts = f"each of {len(plan.hosts)} hosts sends the sum, in {plan.shards} parts"
        over = parts if plan.uses_switch else "nothing is sent"
        ranks = name_ranks(plan.hosts[found.host])
        text = f"{ranks} of {comm.world_size} share this host's memory; of large tensors {over}"
    if hosts is not None:
        hosts.close()
    return Check(HOSTS, Status.OK, text)


def _full_frames(comm: Communicator) -> Check:
    """Sum as many blocks as fill frames, as int32 and as float32, in packets that no router may cut up."""
    transport = comm.over_switch.transport
    for udp in sockets_of(transport):
        udp.forbid_fragments()
    wrong, off = _wrong_integers(comm, FULL_BLOCKS), _wrong_floats(comm, FULL_BLOCKS)
    numbers = FULL_BLOCKS * comm.lease.block_words
    if wrong or off:
        text = f"{wrong} of {numbers} int32 sums are wrong, {off} of {numbers} float32 sums beyond the codec's error"
        return Check(FULL_FRAMES, Status.FAILED, text, "do not train like this: look for what changes words on the way")
    packet = comm.lease.geometry.max_frame_bytes + IP_UDP_BYTES
    text = f"packets of {packet} B pass unfragmented; {numbers} int32 and {numbers} float32 sums are right"
    larger = JUMBO.max_frame_bytes + IP_UDP_BYTES
    if packet < larger <= (known := min((udp.path_mtu for udp in sockets_of(transport)), default=0)):
        text += f"; the MTU here is {known} B: if all are {larger} B or more, the pipeline `jumbo` needs fewer frames"
    return Check(FULL_FRAMES, Status.OK, text)


def _batches(comm: Communicator) -> Check:
    """Sum what fills all slots, in runs (GSO) as long as the path takes them; runs end when they damage frames."""
    blocks, wrong, damaged = 4 * comm.lease.slot_count * comm.lease.columns, 0, list[int]()
    begun = comm.stats.copy()
    for _ in range(BATCH_SUMS):
        before = comm.stats.copy()
        wrong += _wrong_integers(comm, blocks)
        spent = comm.stats - before
        damaged += [found] if (found := spent.corrupt + spent.malformed) else []
    singly = sum(damaged[DAMAGED_COLLECTIVES:])  # after so many the switch, too, is asked for no batches
    spent = comm.stats - begun
    size, in_batches = 4 * BATCH_SUMS * blocks * comm.lease.block_words, comm.over_switch.segmentation
    how = "in batches" if in_batches else "singly"
    text = f"{size} B right, {how}; {spent.retransmissions} of {spent.frames_up} frames were repeated"
    if wrong:
        return Check(BATCHES, Status.FAILED, f"{wrong} int32 sums are wrong", f"do not train like this: {_GSO_ADVICE}")
    if damaged and not singly and not in_batches:
        text += f"; {sum(damaged)} arrived damaged in batches, none singly"
        return Check(BATCHES, Status.WARNING, text, _GSO_ADVICE)
    if damaged:
        advice = f"{_DAMAGE_ADVICE}; or {_GSO_ADVICE}"
        return Check(BATCHES, Status.WARNING, f"{text}; {sum(damaged)} arrived damaged", advice)
    if spent.retransmissions > REPEATS_WARNING * spent.frames_up:
        advice = "look for a link that drops frames when it is full (`ip -s link`, switch counters), or a busy machine"
        return Check(BATCHES, Status.WARNING, text, advice)
    return Check(BATCHES, Status.OK, text)


def _bottleneck(hosts: Sequence[tuple[int, ...]], access: _Access, client: JobClient, comm: Communicator) -> Check:
    """Measure dense sums of one rank alone and of all ranks, and say which link or setting limits them."""
    if comm.world_size == 1:
        alone = bottleneck.dense_rate(comm)
        text = (
            f"this rank alone {bottleneck.show_rate(alone)} each way: --job, on all ranks, tells what limits their sums"
        )
        return Check(BOTTLENECK, Status.OK, text)
    slots = max(OWN_SLOTS, 2 * comm.lease.slot_count // len(comm.lease.switches))
    join_alone = partial(access.alone, client, slots)
    rates = bottleneck.measure(comm, tuple(hosts), join_alone, 3 * access.timeout_s)
    if isinstance(rates, str):
        return Check(BOTTLENECK, Status.SKIPPED, f"it takes free slots for a job of one rank: {rates}")
    said = [bottleneck.limit_of_links(rates)]
    if of_slots := bottleneck.limit_of_slots(comm.lease, rates.round_trip_s, max(rates.alone)):
        said.append(of_slots)
    advice = "; ".join(filter(None, (one.advice for one in said)))
    return Check(BOTTLENECK, Status.WARNING if advice else Status.OK, "; ".join(one.found for one in said), advice)


def _mtu_advice(comm: Communicator) -> str:
    packet = comm.lease.geometry.max_frame_bytes + IP_UDP_BYTES
    transport = comm.over_switch.transport
    mtus = [udp.path_mtu for udp in sockets_of(transport)]
    known = f" (here it is {min(mtus)} B)" if mtus else ""
    return (
        f"small frames pass: let every MTU between the workers and the switch be {packet} B or more{known}, or give "
        "the controller a pipeline with smaller frames"
    )


def _wrong_integers(comm: Communicator, blocks: int) -> int:
    """Return how many sums of int32 over the whole range are not those of the ranks' known numbers, modulo 2^32."""
    data = [_random(rank).integers(-(2**31), 2**31, blocks * comm.lease.block_words) for rank in range(comm.world_size)]
    found = comm.all_reduce(data[comm.rank].astype(np.int32))
    return int(np.count_nonzero(found != np.sum(data, axis=0).astype(np.int32)))


def _wrong_floats(comm: Communicator, blocks: int) -> int:
    """Return how many sums of float32 within (-1, 1) are off by more than the codec's error (docs/protocol.md)."""
    size, ranks = blocks * comm.lease.block_words, comm.world_size
    data: list[NDArray[np.float32]] = [_random(rank).uniform(-1, 1, size).astype(np.float32) for rank in range(ranks)]
    found: NDArray[Any] = comm.all_reduce(data[comm.rank])
    unit = 2.0 ** ((ranks - 1).bit_length() - 30)
    bound = ranks / 2 * unit + ranks * 2.0**-24  # and the rounding of the sum to float32
    return int(np.count_nonzero(np.abs(found - np.sum(data, axis=0, dtype=np.float64)) > bound))


def _random(rank: int) -> np.random.Generator:
    return np.random.default_rng(1 + rank)


def _drops(client: JobClient) -> Counter[str]:
    """Return how many frames the switches have dropped, by reason and switch; empty if the controller cannot say."""
    try:
        return Counter({f"{drop.reason} at {drop.switch}": drop.count.packets for drop in client.stats().drops})
    except JobServiceError:
        return Counter()


def _since(before: Counter[str], after: Counter[str], reasons: Sequence[str] = ()) -> str:
    """Return the switches' drops since `before`, of all jobs, as the end of a sentence; for these reasons, or any.

    A switch whose drops were not read before is left out: all that it ever dropped would seem new.
    """
    known = [where for where in before if not reasons or where.partition(" ")[0] in reasons]
    grown = [f"{count} {where}" for where, count in (after - before).items() if where in known]
    return f"; meanwhile frames were dropped: {', '.join(grown)}" if grown else ""


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.1f} s"
