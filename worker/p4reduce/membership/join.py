"""Joining a job: from a name to a communicator."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from p4reduce.communicator import Communicator
from p4reduce.epoch import EpochMembership, of_rank
from p4reduce.errors import CommunicatorClosedError, GeometryMismatchError, JoinError
from p4reduce.membership.heartbeat import LEAVE_TIMEOUT_S, Heartbeat
from p4reduce.membership.rank_metrics import RankMetrics, address_of
from p4reduce.membership.rejoin import Rejoin
from p4reduce.membership.sigterm import LEAVE_S, on_sigterm
from p4reduce.paths.hosts.find import Hosts, ShardJob, ShardJobs, host_name, why_alone
from p4reduce.protocol.channel import load_pump
from p4reduce.timeouts import DEFAULT_TIMEOUT_S, Timeout, timeout_seconds
from p4reduce.transport import SideBySide, Transport, UdpTransport
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire.hello import nonce_for
from p4reduce_runtime import forks, kernels
from p4reduce_runtime.environment import (
    P4REDUCE_CONTROLLER,
    P4REDUCE_INSECURE,
    P4REDUCE_JOB,
    P4REDUCE_SUMMARY,
    P4REDUCE_SWITCH,
)
from p4reduce_runtime.logs import event
from p4reduce_runtime.settings import ConfigError
from p4reduce_runtime.threads import DaemonThread
from p4reduce_runtime.underlay import pack_hello

if TYPE_CHECKING:
    from p4reduce_contracts.jobs.answers import JobInfo, JoinTicket
    from p4reduce_contracts.jobs.client import JobClient
    from p4reduce_contracts.jobs.watch import Watch
    from p4reduce_runtime.security import Security

_log = logging.getLogger(__name__)

T = TypeVar("T")

_RETRY_S: Final = 0.5
_CHECK_EVERY_S: Final = 1.0
_SAY_EVERY_S: Final = 5.0
"""Seconds between two log lines of join() about what it waits for."""


def join(
    job: str | None = None,
    *,
    rank: int | None = None,
    world_size: int | None = None,
    controller: str | None = None,
    timeout_s: Timeout = 30.0,
    collective_timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    security: Security | None = None,
    token: str | None = None,
    rejoin: bool = False,
    metrics: str | None = None,
    insecure: bool = False,
    switch: str | None = None,
    check: Callable[[], None] | None = None,
    run: str | None = None,
) -> Communicator:
    """Join a job and wait until all its ranks have, and before that for the controller.

    What is not given is read from the environment: P4REDUCE_JOB, RANK, WORLD_SIZE (as torchrun sets
    them) and P4REDUCE_CONTROLLER (host:port of the controller, default 127.0.0.1:9600).
    Timeouts are in seconds, or timedeltas as in torch.distributed.
    `timeout_s` bounds the joining, and is used in full; what it waits for is logged every few seconds. Before it, the
    first time on a machine, one of its processes compiles kernels (`p4reduce warm` does that ahead).
    `collective_timeout_s` bounds every collective that names no timeout.
    `security` is this worker's certificate, if the controller requires one (else: P4REDUCE_CA, _CERT and _KEY), `token`
    the job's, if it is private (else: P4REDUCE_TOKEN).
    With `rejoin`, on all ranks, a JobResetError without a request to reset does not end the communicator: the next
    collective, or the one that it interrupted, joins again, for `timeout_s` at most, and is finished in the job's next
    epoch. `metrics` is HOST:PORT, where Prometheus finds what this rank counts (else: P4REDUCE_METRICS, with a port
    that is higher by LOCAL_RANK).
    Ranks of one host add large tensors in its memory, and send each block once (docs/hosts.md); P4REDUCE_HOSTS=off lets
    every rank send for itself.
    `insecure` (else: P4REDUCE_INSECURE, 0 or 1) allows beyond loopback a controller without TLS, and
    `metrics`, which are HTTP without authentication. `switch` (else: P4REDUCE_SWITCH) is the name of the switch that
    this rank sends to, where the controller has several with different addresses; ranks may give different ones.
    `check` is called every second while this rank waits, on a thread; what it raises ends the joining.
    `run` names the launch (else: torchrun's run id): ranks of another one wait until this one has left the job.
    The communicator is closed at the end of the interpreter, if not before. Rank 0 then logs, at level INFO, what was
    sent and saved; P4REDUCE_SUMMARY=off ends that.
    Raises JoinError, whose message says what to change.
    """
    try:
        timeout_s = timeout_seconds(timeout_s)
        collective_timeout_s = timeout_seconds(collective_timeout_s, "collective_timeout_s")
        insecure = insecure or P4REDUCE_INSECURE.read()
        alone, summary = why_alone(os.environ), P4REDUCE_SUMMARY.read()
    except ValueError as error:  # also a ConfigError
        raise JoinError(str(error)) from error
    environment = os.environ
    job = job or P4REDUCE_JOB.read(environment)
    if not job:
        raise JoinError("no job name: pass job=... or set P4REDUCE_JOB (create one with `p4reduce job create`)")
    rank = _number("rank", "RANK", rank, environment)
    world_size = _number("world_size", "WORLD_SIZE", world_size, environment)
    if not 0 <= rank < world_size:
        raise JoinError(f"rank {rank} of world size {world_size}: ranks are 0 to {world_size - 1}")
    address = controller or P4REDUCE_CONTROLLER.read(environment)
    metrics_address = address_of(metrics, environment)
    counted = None if metrics_address is None else RankMetrics(metrics_address, insecure=insecure)
    switch = P4REDUCE_SWITCH.read(environment) if switch is None else switch
    run = run_id(environment) if run is None else run
    joiner = _Joiner(job, rank, world_size, address, security, token, insecure, switch, check, run, persistent=rejoin)
    try:
        load_all_kernels()
        epoch = joiner.join(timeout_s)
    except BaseException:
        if counted is not None:
            counted.close()
        raise
    lease = epoch.lease
    event(
        _log,
        logging.INFO,
        "job joined",
        **of_rank(lease),
        world_size=lease.world_size,
        epoch=lease.epoch,
        slots=lease.slot_count,
        controller=address,
    )
    try:
        comm = Communicator(lease, epoch.transport, membership=epoch.membership, timeout_s=collective_timeout_s)
    except BaseException:  # this rank is a member from here on: the others must not wait for one that has failed
        epoch.release()
        raise
    if rejoin:
        Rejoin(joiner.join, joiner.cancel, timeout_s).attach(comm)
    if world_size > 1:
        comm.hosts = Hosts(ControllerShardJobs(joiner), keep_words=rejoin, alone=alone)
    if summary:
        comm.at_close.append(log_summary)
    joiner.attach(comm)
    if counted is not None:
        counted.attach(comm)
    close_at_exit(comm)
    return comm


def load_all_kernels() -> None:
    """Load the compiled kernels, before this rank is a member that the others wait for, and descriptors are used up."""
    try:
        kernels.preload("p4reduce.protocol.kernels", "p4reduce.protocol.blocks_kernels", "p4reduce.codecs.kernels")
        load_pump()
    except kernels.CompilationError as error:
        raise JoinError(str(error)) from error


@dataclass(repr=False)  # it has the token
class _Joiner:
    """Joins one job as one rank, once or after each reset (see `rejoin.Joiner`)."""

    job: str
    rank: int
    world_size: int
    controller: str
    security: Security | None
    token: str | None
    insecure: bool
    switch: str
    check: Callable[[], None] | None
    run: str
    persistent: bool
    """Whether a reset while this rank waits for its lease is no error: it joins again."""
    _heartbeat: Heartbeat | None = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _cancelled: bool = field(default=False, init=False)
    _client: JobClient | None = field(default=None, init=False)
    """The client of the `join` in progress."""

    def join(self, timeout_s: float) -> EpochMembership:
        """Join the job's next epoch. Raises JoinError."""
        former, before = 0, self._heartbeat
        if before is not None:
            before.abandon()
            former = before.nonce  # a controller that was away for long still counts it as a member
        patience = Patience(self.rank, f"join job {self.job!r}", timeout_s, self.check)
        client = self._dial(patience)
        try:
            ours = self.job, self.rank, self.world_size, self.run
            join = partial(client.join, *ours, former=former, switch=self.switch, host=host_name(os.environ))
            lease, transport, nonce, watch = _admit(client, join, patience, persistent=self.persistent)
        except BaseException:
            client.close()
            raise
        finally:
            self._client = None
        self._heartbeat = Heartbeat(client, nonce, lease, watch, before)
        _act_at_exit()
        _heartbeats[id(self._heartbeat)] = self._heartbeat
        forks.keep_from_children(self.controller)
        return EpochMembership(lease, transport, self._heartbeat)

    def attach(self, communicator: Communicator) -> None:
        """Report what this communicator waits for in the heartbeats of this and later epochs."""
        assert self._heartbeat is not None
        self._heartbeat.attach(communicator)

    def dial(self, token: str | None = None) -> JobClient:
        """Return a client of the same controller. Raises JoinError."""
        from p4reduce_contracts.jobs.client import JobClient

        try:
            return JobClient(self.controller, security=self.security, token=token or self.token, insecure=self.insecure)
        except ConfigError as error:
            raise JoinError(str(error)) from error

    def of_shard(self, job: str, rank: int, world_size: int, token: str | None) -> _Joiner:
        """Return a joiner of another job with this one's controller, security and switch, until this job is reset."""
        token, check = token or self.token, self._check_membership
        return replace(self, job=job, rank=rank, world_size=world_size, token=token, persistent=False, check=check)

    def _check_membership(self) -> None:
        """Raise where the membership of the last `join` is void."""
        if self._heartbeat is not None and (failure := self._heartbeat.failure()) is not None:
            raise failure

    def cancel(self) -> None:
        """End a `join` on another thread, and let there be no further one."""
        with self._lock:
            self._cancelled = True
            if self._client is not None:
                self._client.close()

    def _dial(self, patience: Patience) -> JobClient:
        with self._lock:
            if self._cancelled:
                raise patience.give_up(CommunicatorClosedError("the communicator was closed"))
            self._client = self.dial()
            return self._client


class ControllerShardJobs(ShardJobs):
    """Jobs of shards at the controller of a job that was joined."""

    def __init__(self, joiner: _Joiner) -> None:
        self._joiner = joiner
        self._made: list[JobInfo] = []

    def create(self, job: str, count: int, world_size: int, slots: int, *, private: bool) -> list[ShardJob]:
        with self._joiner.dial() as client:
            slots = min(slots, client.list_jobs().free_slots // count)
            if not slots:
                raise JoinError("the switch has no free slots")
            name = f"shard-{secrets.token_hex(6)}"
            for shard in range(count):
                made = client.create_job(
                    f"{name}-{shard}", world_size, slots, private=private, ephemeral=True, part_of=job
                )
                self._made.append(made)
            return [ShardJob(made.name, made.member_token) for made in self._made]

    def remove(self) -> None:
        made, self._made = self._made, []
        with contextlib.suppress(Exception):  # they end without members, too
            for job in made:
                with self._joiner.dial(job.owner_token) as client:
                    client.timeout_s = LEAVE_TIMEOUT_S
                    client.remove_job(job.name)

    def join(self, job: ShardJob, rank: int, world_size: int, timeout_s: float) -> EpochMembership:
        return self._joiner.of_shard(job.name, rank, world_size, job.token).join(timeout_s)


def log_summary(comm: Communicator) -> None:
    """Log on rank 0 what a communicator has done, if it has done anything."""
    counted = comm.stats
    if comm.rank or not counted.collectives:
        return
    event(
        _log,
        logging.INFO,
        "job summary",
        job=comm.lease.name,
        over_p4reduce=counted.collectives,
        over_gloo=comm.count_over_gloo(),
        underflows=comm.underflows,
        sent_bytes=counted.bytes_up,
        saved_bytes=counted.dense_bytes - counted.bytes_up,
        collective_s=round(comm.collective_s, 3),
    )


_communicators: weakref.WeakValueDictionary[int, Communicator] = weakref.WeakValueDictionary()
_heartbeats: weakref.WeakValueDictionary[int, Heartbeat] = weakref.WeakValueDictionary()
"""By their ids: unlike a WeakSet it can be copied while other threads add to it."""
_process = 0


def close_at_exit(comm: Communicator) -> None:
    """Close a communicator when the interpreter ends, but not in a forked child."""
    _act_at_exit()
    _communicators[id(comm)] = comm


def _act_at_exit() -> None:
    global _process
    if _process != os.getpid():  # registered here, after gRPC is imported, so that it runs before gRPC's end
        _process = os.getpid()
        _communicators.clear()
        _heartbeats.clear()
        atexit.register(_leave_all, _process)
        on_sigterm(_leave_at_once)


def _leave_all(process: int) -> None:
    if process != os.getpid():
        return
    for comm in _alive(_communicators):
        with contextlib.suppress(Exception):
            comm.close()
    for heartbeat in _alive(_heartbeats):  # of communicators that were not closed: their heartbeats still run
        with contextlib.suppress(Exception):
            heartbeat.leave()


def _leave_at_once() -> None:
    for heartbeat in _alive(_heartbeats):
        heartbeat.leave_at_once(LEAVE_S)


def _alive(references: weakref.WeakValueDictionary[int, T]) -> list[T]:
    return [found for each in references.valuerefs() if (found := each()) is not None]


def _number(what: str, variable: str, given: int | None, environment: Mapping[str, str]) -> int:
    if given is not None:
        return given
    text = environment.get(variable)
    if text is None:
        raise JoinError(f"no {what}: pass {what}=... or set {variable} (torchrun does)")
    try:
        return int(text)
    except ValueError:
        raise JoinError(f"{variable} is {text!r}; it has to be a whole number") from None


class Patience:
    """The time left for what a rank asks of the controller; logs every few seconds what is missing."""

    def __init__(self, rank: int, to_do: str, timeout_s: float, check: Callable[[], None] | None = None) -> None:
        """`check` raises what ends the wait before its time."""
        self._check = check
        self._ended_by: Exception | None = None
        self._who = f"rank {rank} could not {to_do}"
        self._waits = f"rank {rank} waits to {to_do}"
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._say_at = 0.0

    @property
    def left_s(self) -> float:
        """Seconds left, never fewer than a call to the controller needs to be tried at all."""
        return max(0.1, self._deadline - time.monotonic())

    def pause(self, error: Exception) -> None:
        """Wait a little for what `error` says is missing; JoinError when the time is over."""
        left_s = self._deadline - time.monotonic()
        if self.is_over():
            raise self.give_up(error)
        if left_s <= 0:
            raise JoinError(f"{self._who} in {self._timeout_s:g} s: {error}") from error
        self.say(str(error))
        time.sleep(min(_RETRY_S, left_s))

    def say(self, what: str) -> None:
        """Log what is missing, unless something was logged a moment ago."""
        now = time.monotonic()
        if now >= self._say_at:
            self._say_at = now + _SAY_EVERY_S
            _log.warning("%s: %s (%.0f s of %g s left)", self._waits, what, self.left_s, self._timeout_s)

    def is_over(self) -> bool:
        """Return whether to wait does not help any more, as `check` has raised."""
        if self._check is not None and self._ended_by is None:
            try:
                self._check()
            except Exception as error:  # a store's may be any
                self._ended_by = error
        return self._ended_by is not None

    def watched(self, end: Callable[[], None]) -> contextlib.AbstractContextManager[None]:
        """Call `end`, while the body runs, once `check` raises."""
        if self._check is None:
            return contextlib.nullcontext()

        def look() -> None:
            if self.is_over():
                end()

        return _meanwhile("p4reduce-check", look, first_s=_CHECK_EVERY_S, every_s=_CHECK_EVERY_S)

    def give_up(self, error: Exception) -> JoinError:
        """Return the error for a failure that waiting does not help."""
        return JoinError(f"{self._who}: {self._ended_by or error}")


def _admit(
    client: JobClient, join: Callable[[], JoinTicket], patience: Patience, *, persistent: bool
) -> tuple[Lease, Transport, int, Watch]:
    """`join` until the controller grants the lease; return it, the socket that it admits, the nonce and its watch."""
    from p4reduce_contracts.jobs.errors import (
        ControllerUnreachableError,
        JobServiceError,
        MemberResetError,
        RetryLaterError,
    )

    passing = (ControllerUnreachableError, RetryLaterError, *((MemberResetError,) if persistent else ()))
    longest_call_s = client.timeout_s
    try:
        while True:
            client.timeout_s = min(longest_call_s, patience.left_s)
            try:
                return _admit_once(client, join, patience)
            except passing as error:  # not up, reconnecting, or another launch or worker has this rank
                patience.pause(error)
            except JobServiceError as error:
                raise patience.give_up(error) from error
    finally:
        client.timeout_s = longest_call_s


def _admit_once(
    client: JobClient, join: Callable[[], JoinTicket], patience: Patience
) -> tuple[Lease, Transport, int, Watch]:
    """`join`, and send HELLO until the controller grants the lease; leave the job on any error."""
    from p4reduce_contracts.jobs.errors import ControllerUnreachableError

    ticket = join()
    watch = client.watch(ticket.nonce)  # before the lease: a process that ends right after it is noticed at once
    sockets: dict[tuple[str, int], UdpTransport] = {}
    try:
        for each in ticket.switches:
            sockets[each.host, each.port] = _socket(each.host, each.port)

        def say_hello() -> None:
            for place, each in enumerate(ticket.switches):
                hello = pack_hello(ticket.job_id, nonce_for(ticket.nonce, place))
                sockets[each.host, each.port].send([hello])

        say_missing = partial(_say_who_is_missing, client, ticket.job, patience)
        with (
            _meanwhile("p4reduce-hello", say_hello, first_s=0.0, every_s=ticket.hello_interval_s or 0.1),
            _meanwhile("p4reduce-missing", say_missing, first_s=_SAY_EVERY_S, every_s=_SAY_EVERY_S),
            patience.watched(client.close),
        ):
            granted = _wait_lease(client, ticket.nonce, patience)
        places = [(each.host, each.port) for each in granted.switches]
        if len(set(places)) < len(places) or not sockets.keys() >= set(places):
            raise JoinError(f"the lease names switches at {places}, and HELLO was for those at {list(sockets)}")
        used = [sockets.pop(place) for place in places]
        for socket in sockets.values():
            socket.close()
        return granted, used[0] if len(used) == 1 else SideBySide(used), ticket.nonce, watch
    except BaseException as error:
        for socket in sockets.values():
            socket.close()
        if not isinstance(error, ControllerUnreachableError):
            with contextlib.suppress(Exception):
                client.leave(ticket.nonce)  # which ends the watch
        watch.close()
        if isinstance(error, GeometryMismatchError):
            raise GeometryMismatchError(f"the switch's pipeline does not suit this worker: {error}") from error
        raise


def _wait_lease(client: JobClient, nonce: int, patience: Patience) -> Lease:
    """Wait for the lease, through breaks of the connection: joining anew would reset the others if they have theirs."""
    from p4reduce_contracts.jobs.errors import ControllerUnreachableError, MemberResetError

    lost: ControllerUnreachableError | None = None
    while True:
        try:
            return client.wait_lease(nonce, patience.left_s)
        except ControllerUnreachableError as error:
            lost = error
            patience.pause(error)
        except MemberResetError:
            if lost is not None:  # the controller restarted without this member
                raise lost from None
            raise


def _say_who_is_missing(client: JobClient, job: str, patience: Patience) -> None:
    with contextlib.suppress(Exception):  # whether the controller answers shows in the calls that need its answer
        if missing := client.get_job(job).missing:
            patience.say(missing)


def _socket(host: str, port: int) -> UdpTransport:
    try:
        return UdpTransport(host, port)
    except OSError as error:
        raise JoinError(f"no UDP socket towards the switch at {host}:{port}: {error}") from error


@contextlib.contextmanager
def _meanwhile(name: str, action: Callable[[], None], *, first_s: float, every_s: float) -> Iterator[None]:
    """Do `action` after `first_s` and then every `every_s`, on a thread of that name, while the body runs."""
    stop = threading.Event()

    def repeat() -> None:
        wait_s = first_s
        while not stop.wait(wait_s):
            action()
            wait_s = every_s

    thread = DaemonThread(repeat, name)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=5.0)


def run_id(environment: Mapping[str, str]) -> str:
    """Return an id that all ranks of one launch share and no other launch has; "" if the environment has none.

    torchrun's own run id is "none" unless it was given one: then the port of its rendezvous, which two launches on one
    machine cannot share, is part of this. Its address and the count of restarts may differ between the ranks.
    """
    run = environment.get("TORCHELASTIC_RUN_ID", "")
    return f"none@{environment.get('MASTER_PORT', '')}" if run == "none" else run
