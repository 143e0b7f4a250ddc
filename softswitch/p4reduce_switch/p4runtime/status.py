"""How a request is refused: an exception with a canonical code, and the packed details of a refused batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import grpc
from google.rpc import status_pb2

from p4reduce_contracts.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_contracts.p4runtime.status import DETAILS

Code = grpc.StatusCode


class Refused(Exception):
    """A request, or one update of a batch, that the switch does not carry out."""

    def __init__(self, code: Any, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def number(self) -> int:
        """The canonical code as google.rpc.Code."""
        return int(self.code.value[0])


def invalid(message: str) -> NoReturn:
    """Refuses with INVALID_ARGUMENT."""
    raise Refused(Code.INVALID_ARGUMENT, message)


def batch_details(results: Sequence[Refused | None]) -> bytes:
    """The google.rpc.Status of a batch with failures: one p4.v1.Error for each update, in order."""
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


def abort(context: Any, refused: Refused) -> NoReturn:
    """Ends an RPC with an error."""
    context.abort(refused.code, refused.message)
    raise AssertionError("grpc's abort returned")


def abort_batch(context: Any, results: Sequence[Refused | None]) -> NoReturn:
    """Ends a Write of which some updates failed."""
    context.set_trailing_metadata(((DETAILS, batch_details(results)),))
    context.abort(Code.UNKNOWN, "Write failure.")
    raise AssertionError("grpc's abort returned")
