"""Errors of requests: an exception with a canonical code, and the error details of a Write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import grpc
from google.rpc import status_pb2

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime.status import DETAILS
from p4reduce_switch.program import errors

Code = grpc.StatusCode
_CODES: dict[type[Exception], Code] = {
    errors.EntryExistsError: Code.ALREADY_EXISTS,
    errors.EntryMissingError: Code.NOT_FOUND,
    errors.TableFullError: Code.RESOURCE_EXHAUSTED,
    errors.TargetExistsError: Code.ALREADY_EXISTS,
    errors.TargetMissingError: Code.NOT_FOUND,
    errors.TargetInUseError: Code.FAILED_PRECONDITION,
    errors.ProfileFullError: Code.RESOURCE_EXHAUSTED,
    errors.MixedUseError: Code.INVALID_ARGUMENT,
    ValueError: Code.INVALID_ARGUMENT,
}
"""The codes of the errors with which the program's state refuses a change."""


class RequestError(Exception):
    """The status with which a request, or one update of a Write, fails."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def number(self) -> int:
        """The canonical code as google.rpc.Code."""
        return int(self.code.value[0])


def invalid_argument(message: str) -> NoReturn:
    """Raise a RequestError with INVALID_ARGUMENT."""
    raise RequestError(Code.INVALID_ARGUMENT, message)


def request_error(error: Exception) -> RequestError:
    """Return the error of a request that the program's state has refused; INTERNAL for an unexpected one."""
    if type(error) in _CODES:
        return RequestError(_CODES[type(error)], str(error))
    return RequestError(Code.INTERNAL, f"{type(error).__name__}: {error}")


def write_details(results: Sequence[RequestError | None]) -> bytes:
    """Return the google.rpc.Status of a Write with failed updates: one p4.v1.Error for each update, in order."""
    status = status_pb2.Status(code=Code.UNKNOWN.value[0], message="Write failure.")
    for result in results:
        error = p4r.Error()
        if result is not None:
            error.canonical_code = result.number
            error.message = result.message
            error.space = "p4reduce"
            error.code = result.number
        status.details.add().Pack(error)
    return bytes(status.SerializeToString())


def abort(context: grpc.ServicerContext, error: RequestError) -> NoReturn:
    """End an RPC with an error."""
    context.abort(error.code, error.message)


def abort_write(context: grpc.ServicerContext, results: Sequence[RequestError | None]) -> NoReturn:
    """End a Write of which some updates failed."""
    context.set_trailing_metadata(((DETAILS, write_details(results)),))
    context.abort(Code.UNKNOWN, "Write failure.")
