"""What gRPC errors become."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.rpc import status_pb2

from p4reduce_controller.p4runtime import failures
from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime.errors import (
    Failure,
    NotPrimaryError,
    PipelineError,
    ReadError,
    SwitchUnreachableError,
    WriteError,
)

Code = grpc.StatusCode
BATCH = [("insert", "a"), ("modify", "b"), ("delete", "c")]


class Error:
    """The part of a grpc.RpcError that is read."""

    def __init__(self, code: Any, details: str = "", metadata: Any = ()) -> None:
        self.code, self.details, self.trailing_metadata = (lambda: code), (lambda: details), (lambda: metadata)


def batch_error(*codes: tuple[int, str]) -> Error:
    status = status_pb2.Status(code=2)
    for code, message in codes:
        status.details.add().Pack(p4r.Error(canonical_code=code, message=message))
    metadata = (("other", "x"), ("grpc-status-details-bin", status.SerializeToString()))
    return Error(Code.UNKNOWN, "", metadata)


def test_each_refused_update_is_named() -> None:
    error = failures.of_write(batch_error((0, ""), (5, "gone"), (6, "")), BATCH, "switch")
    assert isinstance(error, WriteError)
    assert error.failures == (
        Failure(1, "modify", "b", "NOT_FOUND", "gone"),
        Failure(2, "delete", "c", "ALREADY_EXISTS", ""),
    )
    assert str(error) == "2 of 3 updates refused: modify b: NOT_FOUND: gone; delete c: ALREADY_EXISTS"
    assert error.only("NOT_FOUND", "ALREADY_EXISTS")
    assert not error.only("NOT_FOUND")


def test_an_unknown_code_is_shown() -> None:
    error = failures.of_write(batch_error((99, "?")), BATCH[:1], "switch")
    assert isinstance(error, WriteError)
    assert error.failures[0].code == "code 99"


@pytest.mark.parametrize("metadata", [(), (("grpc-status-details-bin", b"\xff\xff"),), None])
def test_without_details_a_single_update_has_the_error(metadata: Any) -> None:
    error = Error(Code.UNKNOWN, "words", metadata)
    single = failures.of_write(error, BATCH[:1], "switch")
    several = failures.of_write(error, BATCH, "switch")
    assert isinstance(single, WriteError) and isinstance(several, WriteError)
    assert single.failures == (Failure(0, "insert", "a", "UNKNOWN", "words"),)
    assert several.failures == ()
    assert "words" in str(several)
    assert not several.only("UNKNOWN")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (Code.UNAVAILABLE, SwitchUnreachableError),
        (Code.DEADLINE_EXCEEDED, SwitchUnreachableError),
        (Code.CANCELLED, SwitchUnreachableError),
        (Code.PERMISSION_DENIED, NotPrimaryError),
        (Code.FAILED_PRECONDITION, PipelineError),
    ],
)
def test_errors_of_the_whole_call(code: Any, kind: type[Exception]) -> None:
    error = Error(code, "words")
    for found in (
        failures.of_write(error, BATCH, "switch"),
        failures.of_read(error, "switch"),
        failures.of_pipeline(error, "switch"),
    ):
        assert type(found) is kind
        assert "switch" in str(found)


def test_errors_of_reads_and_pipelines_have_the_switchs_message() -> None:
    error = Error(Code.INVALID_ARGUMENT, "words")
    read, pipeline = failures.of_read(error, "switch"), failures.of_pipeline(error, "switch")
    assert isinstance(read, ReadError) and read.code == "INVALID_ARGUMENT"
    assert isinstance(pipeline, PipelineError) and "words" in str(pipeline)
