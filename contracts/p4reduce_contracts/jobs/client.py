"""JobClient: the client of the job service, for workers and the command line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any, TypeVar

import grpc
import msgspec
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from grpc.experimental import ChannelOptions

from p4reduce_contracts.jobs import DEFAULT_CONTROLLER, jobs_pb2, jobs_pb2_grpc
from p4reduce_contracts.jobs.answers import JobInfo, JobList, JoinTicket, Stats, SwitchInfo, Usage, WaitingSlot
from p4reduce_contracts.jobs.errors import (
    NAME_KEY,
    ControllerUnreachableError,
    InvalidRequestError,
    JobServiceError,
    from_status,
    rounded,
)
from p4reduce_contracts.jobs.lease import Lease, LeasedSwitch, Level
from p4reduce_contracts.jobs.watch import Watch
from p4reduce_runtime import forks
from p4reduce_runtime.environment import P4REDUCE_INSECURE, P4REDUCE_TOKEN
from p4reduce_runtime.security import CONTROLLER, Security, check_dialling, dial, from_environment
from p4reduce_runtime.streams import received

AnswerT = TypeVar("AnswerT")

# Seconds that a controller has for an answer, also to the call for a lease, beyond the time that the controller itself
# waits: its message at its deadline names the missing ranks, the client's cannot.
_ANSWER_S = 5.0

_TLS_WORDS = ("handshake", "verification", "Socket closed")

_CHANNEL_OPTIONS = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # else a new client takes over the pause after another's failed attempt
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),  # gRPC gives a connection attempt this long: a busy machine needs it
    ("grpc.max_reconnect_backoff_ms", 2000),
    (ChannelOptions.SingleThreadedUnaryStream, 1),  # else a watch takes a second thread
]


class JobClient:
    """One connection to a controller's job service. Thread-safe; every call has a deadline.

    Raises the exceptions of `p4reduce_contracts.jobs.errors`, all of them a JobServiceError.
    """

    def __init__(
        self,
        address: str = DEFAULT_CONTROLLER,
        timeout_s: float = _ANSWER_S,
        *,
        security: Security | None = None,
        token: str | None = None,
        insecure: bool = False,
    ) -> None:
        """`security` is by default what P4REDUCE_CA, P4REDUCE_CERT and P4REDUCE_KEY name; without both there is no TLS.

        `token` (else: P4REDUCE_TOKEN) is that of a private job.
        Raises ConfigError if the files cannot be used, and for an `address` beyond loopback without TLS, unless
        `insecure` or P4REDUCE_INSECURE=1 allows it.
        """
        self.address = address
        self.timeout_s = timeout_s
        self._security = security or from_environment(os.environ)
        check_dialling(address, self._security, insecure=insecure or P4REDUCE_INSECURE.read())
        self._token = token or P4REDUCE_TOKEN.read()
        self._channel = dial(address, self._security, role=CONTROLLER, options=_CHANNEL_OPTIONS)
        self._stub = jobs_pb2_grpc.JobsStub(self._channel)

    def close(self) -> None:
        """End the connection. Calls in progress fail."""
        self._channel.close()

    def __enter__(self) -> JobClient:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def create_job(
        self,
        name: str,
        world_size: int,
        slots: int | None = None,
        *,
        switches: int | None = None,
        private: bool = False,
        ephemeral: bool = False,
        part_of: str = "",
        single_epoch: bool = False,
    ) -> JobInfo:
        """Create a job of `world_size` ranks. `slots` None takes 128 to 256, or what is free.

        It has them at each of its switches: of those side by side at most `switches`, None: all.

        A `private` job has tokens, which only this answer holds; over TLS every job has.
        An `ephemeral` job is removed when it has had no member for the controller's `heartbeat_timeout_s`, or never one
        for 30 s: for a launch that makes a job for itself. `part_of` is the job whose shard this one sums, on as many
        switches. Ranks of a job with a `single_epoch` never join it again: it is removed with its last member, and a
        member leaves it 0.1 s after its connection has ended, in place of 1 s.
        """
        _whole("world size", world_size)
        if slots is not None and _whole("slots", slots) == 0:
            raise InvalidRequestError("a job needs at least 1 slot")
        if switches is not None and _whole("switches", switches) == 0:
            raise InvalidRequestError("a job needs at least 1 switch")
        request = jobs_pb2.CreateJobRequest(
            name=name,
            world_size=world_size,
            slots=slots or 0,
            switches=switches or 0,
            private=private,
            ephemeral=ephemeral,
            part_of=part_of,
            single_epoch=single_epoch,
        )
        return _job(self._call(self._stub.CreateJob, request))

    def list_jobs(self, *, ended: bool = False) -> JobList:
        """Return all jobs, or those that have `ended`, the last one first, and the number of free slots."""
        answer = self._call(_whole_answer(self._stub.ListJobs), jobs_pb2.ListJobsRequest(ended=ended))
        return _convert(answer, JobList, jobs=tuple(map(_job, answer.jobs)))

    def get_job(self, name: str) -> JobInfo:
        """Return a job with its members, or the last one of that name that has ended."""
        return _job(self._call(self._stub.GetJob, jobs_pb2.GetJobRequest(name=name, token=self._token)))

    def remove_job(self, name: str) -> None:
        """Remove a job; the members of an ACTIVE one are notified."""
        self._call(self._stub.RemoveJob, jobs_pb2.RemoveJobRequest(name=name, token=self._token))

    def join(
        self,
        job: str,
        rank: int,
        world_size: int,
        run_id: str = "",
        *,
        former: int = 0,
        switch: str = "",
        host: str = "",
    ) -> JoinTicket:
        """Join `job` as `rank` of the launch `run_id`.

        Raises PlaceTakenError while the job has members of another launch, or another worker has the rank. `former` is
        the nonce with which this worker joined before: it may join again before its rank is free, which resets the
        job. `switch` names the switch that the worker sends to, "": those side by side, or the one address of all,
        and `host` the worker's host, for `job show`.
        Then send HELLO with the ticket's nonce to the ticket's switches, repeatedly while `wait_lease` waits.
        """
        request = jobs_pb2.JoinRequest(
            job=job,
            rank=_whole("rank", rank),
            world_size=_whole("world size", world_size),
            run_id=run_id,
            token=self._token,
            former=former,
            switch=switch,
            host=host,
        )
        answer = self._call(self._stub.Join, request)
        return _convert(answer, JoinTicket, job=job, rank=rank, world_size=world_size)

    def wait_lease(self, nonce: int, timeout_s: float) -> Lease:
        """Wait until every rank has joined the job.

        Raises LeaseTimeoutError, which names the missing ranks, MemberResetError, GeometryMismatchError, or
        JobServiceError for a controller of an earlier version.
        """
        request = jobs_pb2.WaitLeaseRequest(nonce=nonce, timeout_s=timeout_s)
        answer = self._call(self._stub.WaitLease, request, timeout_s + _ANSWER_S)
        if not answer.switches:
            raise JobServiceError(
                f"the controller at {self.address} is of an earlier version than this worker: its lease names no "
                "switches; run the same version of p4reduce for both"
            )
        switches = [
            LeasedSwitch(each.host, each.port, each.secret, tuple(_levels(each.levels))) for each in answer.switches
        ]
        return _convert(answer, Lease, switches=tuple(switches))

    def heartbeat(self, nonce: int, slot_wait: WaitingSlot | None = None, usage: Usage | None = None) -> str | None:
        """Send a heartbeat, what this member waits for, and what it has counted since it joined.

        Return why the lease is void, so that the member must join again; None while it is good.
        """
        request = jobs_pb2.HeartbeatRequest(nonce=nonce, usage=_usage(usage))
        if slot_wait is not None:
            request.slot_wait.CopyFrom(jobs_pb2.WaitingSlot(**asdict(slot_wait)))
        reply = self._call(self._stub.Heartbeat, request)
        return reply.reason if reply.reset else None

    def watch(self, nonce: int, on_reset: Callable[[str], None] | None = None) -> Watch:
        """Let the controller detect the end of this process at once, and receive a reset at once.

        `on_reset`, here or by `Watch.attach`, is called with the reason, from a thread; close what is returned after
        this client.
        """
        return Watch(lambda: self._stub.Watch(jobs_pb2.WatchRequest(nonce=nonce)), on_reset)

    def leave(
        self, nonce: int, timeout_s: float | None = None, *, usage: Usage | None = None, finished: bool = False
    ) -> None:
        """Take this member out of its job. Leaving twice, or after a reset, is no error.

        `usage`: what it has counted since it joined. `finished`: all ranks have agreed on the end.
        """
        request = jobs_pb2.LeaveRequest(nonce=nonce, finished=finished, usage=_usage(usage))
        self._call(self._stub.Leave, request, timeout_s)

    def stats(self, job: str | None = None) -> Stats:
        """Return the switches' counters of one job (or of all) and their drops by reason.

        Raises SwitchAwayError where no switch's counters can be read.
        """
        return _convert(self._call(_whole_answer(self._stub.Stats), jobs_pb2.StatsRequest(job=job or "")), Stats)

    def list_switches(self) -> tuple[SwitchInfo, ...]:
        """Return all switches of the controller."""
        answer = self._call(self._stub.ListSwitches, jobs_pb2.ListSwitchesRequest())
        absent = ("problem", "parent", "link_problem")
        return tuple(_convert(each, SwitchInfo, **_texts(each, *absent)) for each in answer.switches)

    def _call(self, method: Any, request: Any, timeout_s: float | None = None) -> Any:
        """Call an RPC; raise its gRPC errors as JobServiceErrors."""
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        try:
            forks.check_grpc()
            return method(request, timeout=timeout_s)
        except grpc.RpcError as error:
            raise self._translate(error, timeout_s) from None
        except ValueError as error:
            raise JobServiceError(f"this JobClient is closed ({error})") from None
        except RuntimeError as error:
            raise JobServiceError(str(error)) from None

    def _translate(self, error: Any, timeout_s: float) -> JobServiceError:
        code, details = error.code(), error.details() or ""
        if code is grpc.StatusCode.UNAVAILABLE:
            return ControllerUnreachableError(self._unreachable(details))
        if code is grpc.StatusCode.DEADLINE_EXCEEDED and details == "Deadline Exceeded":
            return ControllerUnreachableError(
                f"the controller at {self.address} gave no answer within {rounded(timeout_s)} s"
            )
        if code is grpc.StatusCode.CANCELLED:
            return JobServiceError(f"the call to {self.address} was cancelled: this JobClient was closed")
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return ControllerUnreachableError(
                f"the server at {self.address} is not a p4reduce controller; check the address"
            )
        names = [value for key, value in error.trailing_metadata() or () if key == NAME_KEY]
        return from_status(code, details, *names[:1])

    def _unreachable(self, details: str) -> str:
        """Return the advice for an unanswered call. gRPC distinguishes a refused connection only in the error text."""
        if "refused" in details:
            return f"no controller at {self.address}: start one with `p4reduce controller run`"
        if "unreachable" in details or "No route" in details:
            return f"no way to the controller at {self.address}: check cable, interface and route ({details})"
        if "resol" in details:
            return f"the name of the controller at {self.address} does not resolve: correct the name ({details})"
        if self._security is None and "Socket closed" in details:
            return (
                f"{self.address} closed the connection: does the controller use TLS? Name a certificate with "
                "P4REDUCE_CA, P4REDUCE_CERT and P4REDUCE_KEY"
            )
        if self._security is not None and any(word in details for word in _TLS_WORDS):
            return (
                f"no TLS connection to {self.address}: has the controller one, and are its certificate and "
                f"{self._security.certificate} of the authority in {self._security.ca}? ({details})"
            )
        return f"no controller at {self.address}: start one with `p4reduce controller run` ({details})"


def _whole_answer(method: Any) -> Callable[..., Any]:
    """Return a method that returns what `method` streams in parts as one message."""

    def call(request: Message, timeout: float) -> Message:
        parts = received(method(request, timeout=timeout))
        answer: Message | None = next(parts, None)
        if answer is None:
            raise JobServiceError("the controller sent an answer without a part: see its log")
        for part in parts:
            answer.MergeFrom(part)
        return answer

    return call


def _usage(usage: Usage | None) -> jobs_pb2.Usage | None:
    return None if usage is None else jobs_pb2.Usage(**asdict(usage))


def _whole(what: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 32:
        raise InvalidRequestError(f"{what} must be a whole number from 0 to {2**32 - 1}, not {value!r}")
    return value


def _job(answer: Any) -> JobInfo:
    shards = tuple(map(_job, answer.shards))
    return _convert(answer, JobInfo, tree=_levels(answer.tree), shards=shards, **_texts(answer, "last_reset"))


def _levels(answer: Iterable[Any]) -> list[Level]:
    return [
        Level(level.switch, tuple(tuple(child.ranks) for child in level.children), level.parent or None)
        for level in answer
    ]


def _texts(answer: Message, *names: str) -> dict[str, str | None]:
    """Return fields that are None where there is nothing to say: proto3 has "" then."""
    return {name: getattr(answer, name) or None for name in names}


def _convert(answer: Message, kind: type[AnswerT], **further: object) -> AnswerT:
    """Return an answer as a dataclass with fields of the same names; `further` are fields that it lacks."""
    fields = MessageToDict(answer, always_print_fields_with_no_presence=True, preserving_proto_field_name=True)
    return msgspec.convert(fields | further, kind, strict=False)  # 64-bit integers are strings in protobuf's JSON
