"""The exceptions of the job service.

The registry raises them, the servicer sends them as gRPC statuses (`_CODES`) with the error's name (`name_of`) in the
trailing metadata, and the client raises the same ones again.
"""

from __future__ import annotations

import grpc


class JobServiceError(Exception):
    """Anything that the job service refuses or fails at."""


class ControllerUnreachableError(JobServiceError):
    """No controller answers at the address; the client alone raises it."""


class UnknownJobError(JobServiceError):
    """There is no job of that name."""


class JobExistsError(JobServiceError):
    """A job of that name is there already."""


class InvalidRequestError(JobServiceError):
    """The request can never be met as it stands: a bad name, rank or world size."""


class ForbiddenError(JobServiceError):
    """The caller has no right to do that."""


class SwitchFullError(JobServiceError):
    """The switch has too few free slots (or job ids) for the job."""


class LeaseTimeoutError(JobServiceError):
    """Not every rank of the job was there before the deadline."""


class MemberResetError(JobServiceError):
    """The join that this nonce stands for is void."""


class ControllerStoppedError(JobServiceError):
    """The controller ends now; its jobs go on when it is started again. Clients raise ControllerUnreachableError."""


class RetryLaterError(JobServiceError):
    """The request cannot be met at the moment, and may be later."""


class SwitchAwayError(RetryLaterError):
    """The controller is not connected to its switch at the moment."""


class PlaceTakenError(RetryLaterError):
    """Another worker has this rank of the job, or another launch has ranks of it."""


class QuotaExceededError(RetryLaterError):
    """The caller has as many jobs or slots, or joins as often, as one owner may."""


class ControllerFailedError(JobServiceError):
    """The controller failed at something that is not the caller's fault."""


class EpochError(ControllerFailedError):
    """No fresh epoch can be drawn."""


class StoreError(ControllerFailedError):
    """The controller's store cannot be read or written."""


_CODES: dict[type[JobServiceError], grpc.StatusCode] = {
    UnknownJobError: grpc.StatusCode.NOT_FOUND,
    JobExistsError: grpc.StatusCode.ALREADY_EXISTS,
    InvalidRequestError: grpc.StatusCode.INVALID_ARGUMENT,
    ForbiddenError: grpc.StatusCode.PERMISSION_DENIED,
    SwitchFullError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    LeaseTimeoutError: grpc.StatusCode.DEADLINE_EXCEEDED,
    MemberResetError: grpc.StatusCode.ABORTED,
    ControllerStoppedError: grpc.StatusCode.UNAVAILABLE,
    RetryLaterError: grpc.StatusCode.FAILED_PRECONDITION,
}
_CLASSES = {code: cls for cls, code in _CODES.items()}
_NAMED = {"SwitchAway": SwitchAwayError, "PlaceTaken": PlaceTakenError, "QuotaExceeded": QuotaExceededError}

NAME_KEY = "p4reduce-error"
"""The metadata key of the error's name."""


def name_of(error: JobServiceError) -> str:
    """Return the error's name in the trailing metadata, in logs and in metrics: "PlaceTaken" of PlaceTakenError."""
    name = type(error).__name__
    return name if type(error) in (EpochError, StoreError) else name.removesuffix("Error")


def status_code(error: JobServiceError) -> grpc.StatusCode:
    """The gRPC status that carries `error`."""
    return next((code for cls, code in _CODES.items() if isinstance(error, cls)), grpc.StatusCode.INTERNAL)


def from_status(code: grpc.StatusCode, message: str, name: str = "") -> JobServiceError:
    """The exception that a gRPC status of the job service stands for.

    `name` is what `name_of` returned, if it was sent.
    """
    return _NAMED.get(name, _CLASSES.get(code, ControllerFailedError))(message)


def rounded(seconds: float) -> str:
    """Seconds as a message shows them: "3" for 2.99191."""
    return f"{round(seconds, 1 if seconds >= 1 else 2):g}"
