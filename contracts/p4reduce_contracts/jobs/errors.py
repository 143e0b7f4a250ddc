"""The exceptions of the job service.

The registry raises them, the servicer sends them as gRPC statuses with the name of the class in the trailing metadata,
and the client raises the same ones again:

    JobServiceError
     ├── ControllerUnreachable   nobody answers at the address (client only)
     ├── UnknownJob              NOT_FOUND
     ├── JobExists               ALREADY_EXISTS
     ├── InvalidRequest          INVALID_ARGUMENT     a bad name, rank, world size...
     ├── Forbidden               PERMISSION_DENIED    the caller may not do that
     ├── SwitchFull              RESOURCE_EXHAUSTED   no slots or job ids left
     ├── LeaseTimeout            DEADLINE_EXCEEDED    not every rank came in time
     ├── MemberReset             ABORTED              this member's join is void: join again
     ├── ControllerStopped       UNAVAILABLE          the controller ends (the client raises ControllerUnreachable)
     ├── NotNow                  FAILED_PRECONDITION  it may go well later: ask again
     │    ├── SwitchAway         the controller has no connection to its switch now
     │    ├── PlaceTaken         another launch of the job, or another worker of that rank, is a member
     │    └── QuotaExceeded      the caller has as much as one owner may have
     └── ControllerFailed        INTERNAL             everything else, with the controller's own message
          ├── EpochError         no epoch is left for the job's slots
          └── StoreError         the controller's state cannot be read or written
"""

from __future__ import annotations

import grpc


class JobServiceError(Exception):
    """Anything that the job service refuses or fails at."""


class ControllerUnreachable(JobServiceError):
    """No controller answers at the address."""


class UnknownJob(JobServiceError):
    """There is no job of that name."""


class JobExists(JobServiceError):
    """A job of that name is there already."""


class InvalidRequest(JobServiceError):
    """The request can never be met as it stands."""


class Forbidden(JobServiceError):
    """The caller has no right to do that."""


class SwitchFull(JobServiceError):
    """The switch has too few free slots (or job ids) for the job."""


class LeaseTimeout(JobServiceError):
    """Not every rank of the job was there before the deadline."""


class MemberReset(JobServiceError):
    """The join that this nonce stands for is void."""


class ControllerStopped(JobServiceError):
    """The controller ends now; its jobs go on when it is started again."""


class NotNow(JobServiceError):
    """The request cannot be met at the moment, and may be later."""


class SwitchAway(NotNow):
    """The controller is not connected to its switch at the moment."""


class PlaceTaken(NotNow):
    """Another worker has this rank of the job, or another launch has ranks of it."""


class QuotaExceeded(NotNow):
    """The caller has as many jobs or slots, or joins as often, as one owner may."""


class ControllerFailed(JobServiceError):
    """The controller failed at something that is not the caller's fault."""


class EpochError(ControllerFailed):
    """No fresh epoch can be drawn."""


class StoreError(ControllerFailed):
    """What the controller must remember cannot be read or written."""


_CODES: dict[type[JobServiceError], grpc.StatusCode] = {
    UnknownJob: grpc.StatusCode.NOT_FOUND,
    JobExists: grpc.StatusCode.ALREADY_EXISTS,
    InvalidRequest: grpc.StatusCode.INVALID_ARGUMENT,
    Forbidden: grpc.StatusCode.PERMISSION_DENIED,
    SwitchFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    LeaseTimeout: grpc.StatusCode.DEADLINE_EXCEEDED,
    MemberReset: grpc.StatusCode.ABORTED,
    ControllerStopped: grpc.StatusCode.UNAVAILABLE,
    NotNow: grpc.StatusCode.FAILED_PRECONDITION,
}
_CLASSES = {code: cls for cls, code in _CODES.items()}
_NAMED = {cls.__name__: cls for cls in (SwitchAway, PlaceTaken, QuotaExceeded)}

NAME_KEY = "p4reduce-error"
"""The metadata key of the class's name."""


def status_code(error: JobServiceError) -> grpc.StatusCode:
    """The gRPC status that carries `error`."""
    return next((code for cls, code in _CODES.items() if isinstance(error, cls)), grpc.StatusCode.INTERNAL)


def from_status(code: grpc.StatusCode, message: str, name: str = "") -> JobServiceError:
    """The exception that a gRPC status of the job service stands for; `name` is of its class, if that was told."""
    return _NAMED.get(name, _CLASSES.get(code, ControllerFailed))(message)


def rounded(seconds: float) -> str:
    """Seconds as a message shows them: "3" for 2.99191."""
    return f"{round(seconds, 1 if seconds >= 1 else 2):g}"
