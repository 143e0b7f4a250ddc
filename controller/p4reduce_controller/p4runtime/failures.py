"""gRPC errors -> errors of this package; the details of a refused batch -> the updates they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError
from google.rpc import code_pb2, status_pb2

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime.errors import (
    Failure,
    NotPrimaryError,
    P4RuntimeError,
    PipelineError,
    ReadError,
    SwitchUnreachableError,
    WriteError,
)
from p4reduce_runtime.p4runtime.status import DETAILS


def of_write(error: grpc.RpcError, batch: Sequence[tuple[str, object]], address: str) -> P4RuntimeError:
    """Return the errors of a failed Write: one Failure for each refused update of `batch` (operation, entry)."""
    common = _common(error, address)
    if common is not None:
        return common
    details = _details(error)
    failed: list[Failure] = []
    for index, ((operation, entry), packed) in enumerate(zip(batch, details, strict=False)):
        detail = p4r.Error()
        if packed.Unpack(detail) and detail.canonical_code != code_pb2.OK:
            code = _code_name(detail.canonical_code)
            failed.append(Failure(index, operation, entry, code, detail.message))
    if not failed and len(batch) == 1:  # a target that gives no details: there is only one update it can mean
        failed = [Failure(0, *batch[0], error.code().name, error.details() or "")]
    if failed:
        more = f" (and {len(failed) - 3} more)" if len(failed) > 3 else ""
        text = "; ".join(str(failure) for failure in failed[:3])
        return WriteError(f"{len(failed)} of {len(batch)} updates refused: {text}{more}", failed, error.code().name)
    return WriteError(f"write refused: {_words(error)}", (), error.code().name)


def of_read(error: grpc.RpcError, address: str) -> P4RuntimeError:
    """Return the error of a failed Read."""
    return _common(error, address) or ReadError(f"read refused: {_words(error)}", error.code().name)


def of_pipeline(error: grpc.RpcError, address: str) -> P4RuntimeError:
    """Return the error of a failed Set/GetForwardingPipelineConfig."""
    return _common(error, address) or PipelineError(f"the switch at {address} refused the program: {_words(error)}")


def _common(error: grpc.RpcError, address: str) -> P4RuntimeError | None:
    code = error.code()
    if code is grpc.StatusCode.UNAVAILABLE:
        return SwitchUnreachableError(f"the switch at {address} cannot be reached: {error.details()}")
    if code is grpc.StatusCode.CANCELLED:
        return SwitchUnreachableError(f"the connection to the switch at {address} was closed")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return SwitchUnreachableError(f"the switch at {address} did not answer in time")
    if code is grpc.StatusCode.PERMISSION_DENIED:
        return NotPrimaryError(f"the switch at {address} has another controller as primary: {error.details()}")
    if code is grpc.StatusCode.FAILED_PRECONDITION:
        return PipelineError(f"the switch at {address}: {error.details()}")
    return None


def _details(error: grpc.RpcError) -> list[any_pb2.Any]:
    """The packed p4.v1.Error messages of a batch, one for each update; empty when the target sent none."""
    for key, value in cast(Iterable[tuple[str, bytes]], error.trailing_metadata() or ()):
        if key == DETAILS:
            try:
                return list(status_pb2.Status.FromString(value).details)
            except DecodeError:
                return []
    return []


def _code_name(number: int) -> str:
    try:
        return str(code_pb2.Code.Name(number))
    except ValueError:
        return f"code {number}"


def _words(error: grpc.RpcError) -> str:
    return f"{error.code().name}: {error.details()}" if error.details() else str(error.code().name)
