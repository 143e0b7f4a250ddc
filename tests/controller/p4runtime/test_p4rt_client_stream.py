"""Packets, digests and loss, with the software switch behind the client; what gRPC errors become."""

from __future__ import annotations

import gc
import queue
import weakref
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.rpc import status_pb2

from p4reduce_controller.p4runtime import failures
from p4reduce_controller.p4runtime.client import Client
from p4reduce_controller.p4runtime.stream import Stream
from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime.entries import DigestConfig, TableEntry
from p4reduce_runtime.p4runtime.errors import (
    Failure,
    NotPrimaryError,
    P4RuntimeError,
    PipelineError,
    ReadError,
    SwitchUnreachableError,
    WriteError,
)
from rigs.limits import LIMIT_S
from rigs.p4rt import DEVICE_CONFIG, P4INFO, Served, served

SAMPLE = (5).to_bytes(6, "big") + bytes(9)


@pytest.fixture
def switch() -> Iterator[Served]:
    with served() as one:
        yield one


@pytest.fixture
def events() -> queue.SimpleQueue[Any]:
    return queue.SimpleQueue()


@pytest.fixture
def client(switch: Served, events: queue.SimpleQueue[Any]) -> Iterator[Client]:
    one = Client(switch.address)
    one.on_packet_in = lambda payload, metadata: events.put((payload, metadata))
    one.on_digest = lambda name, rows: events.put((name, rows))
    one.on_lost = events.put
    with one:
        one.set_pipeline(P4INFO, DEVICE_CONFIG)
        yield one


def test_packets_out_are_sent_from_their_port(client: Client, switch: Served) -> None:
    client.packet_out(SAMPLE, 258)
    assert switch.ports.sent.get(timeout=LIMIT_S) == (258, SAMPLE)


def test_digests_arrive_and_are_acknowledged(client: Client, switch: Served, events: Any) -> None:
    client.insert(DigestConfig("sighting_t", 0, 1, 3_600 * 10**9))
    client.write([("modify", TableEntry("keyless_table", action="report", is_default=True))])
    digests: Any = switch.server._committed.digests  # type: ignore[union-attr]
    acknowledge, acknowledged = digests.acknowledge, queue.SimpleQueue[None]()
    digests.acknowledge = lambda *which: acknowledged.put(acknowledge(*which))
    for _ in range(2):  # the second would be held back, were the first not acknowledged
        switch.switch.receive(300, SAMPLE)
        assert events.get(timeout=LIMIT_S) == ("sighting_t", [(5, 300)])
        acknowledged.get(timeout=LIMIT_S)


def test_an_error_in_a_callback_is_logged_and_the_next_one_runs(
    client: Client, switch: Served, events: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client.on_packet_in = lambda payload, metadata: events.put(payload) or 1 // 0
    client.write([("modify", TableEntry("exact_table", action="punt", params={"reason": 1}, is_default=True))])
    for _ in range(2):
        switch.switch.receive(1, SAMPLE)
        assert events.get(timeout=LIMIT_S) == SAMPLE
    assert "ZeroDivisionError" in caplog.text


def test_the_end_of_the_switch_calls_on_lost(client: Client, switch: Served, events: Any) -> None:
    client.on_lost = events.put
    client.timeout_s = 0.2
    switch.server.stop()
    assert isinstance(events.get(timeout=LIMIT_S), SwitchUnreachableError)
    with pytest.raises(SwitchUnreachableError):
        client.read_table("exact_table")


def test_ended_calls_are_left_to_no_garbage_collection(client: Client, events: Any) -> None:
    connection: Any = client
    read, stream, calls = connection._rpc.Read, connection._stream, []

    def recorded(*arguments: Any, **options: Any) -> Any:
        call = read(*arguments, **options)
        calls.append(weakref.ref(call))
        return call

    connection._rpc.Read = recorded
    gc.disable()
    try:
        with pytest.raises(P4RuntimeError):
            client.read(p4r.Entity())
        calls.append(weakref.ref(stream._call))
        stream._call.cancel()
        assert isinstance(events.get(timeout=LIMIT_S), SwitchUnreachableError)
        stream._thread.join(LIMIT_S)
        assert [call() for call in calls] == [None, None]
    finally:
        gc.enable()


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


@pytest.mark.fault("the controller fails over a message of the switch: the connection counts as lost at once")
def test_an_unexpected_error_ends_the_stream(switch: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stream, "_arbitrated", lambda _, message: 1 // 0)
    with pytest.raises(SwitchUnreachableError, match="failed over a message of the switch: ZeroDivisionError"):
        Client(switch.address, timeout_s=LIMIT_S).connect()
