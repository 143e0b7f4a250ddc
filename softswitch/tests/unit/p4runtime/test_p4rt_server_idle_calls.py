"""Callers that keep the P4Runtime server waiting: the primary controller, and the next one, are served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.waiting_calls import WaitingCalls
from p4reduce_switch.p4runtime import request_guard
from rigs.certificates import Bench
from rigs.idle_calls import idle_calls, idle_connections
from rigs.limits import wait_until
from rigs.p4rt import P4INFO, Raw, Served, code_of, config, served

METHODS = [f"/p4.v1.P4Runtime/{method.name}" for method in request_guard.P4RUNTIME.methods]
HALF_A_HANDSHAKE = bytes.fromhex("1603010200")
"""The header of a TLS record, whose ClientHello does not follow."""


@pytest.fixture
def primary(switch: Served) -> Iterator[Raw]:
    with Raw(switch.address) as one:
        one.arbitrate()
        one.set_config(config=config())
        yield one


def refused(switch: Served, code: str, count: int) -> None:
    """Return when so many calls have been refused with this code."""
    wait_until(lambda: switch.server.counters().refusals.get(code, 0) == count)


def all_goes_on(switch: Served, primary: Raw) -> None:
    """The primary reads and sets a program, and another controller takes its place."""
    primary.set_config(config=config())
    assert primary.get_config().p4info == P4INFO
    with Raw(switch.address, (0, 9)) as other:
        assert other.arbitrate().status.code == 0
        other.set_config(config=config())


@pytest.mark.fault("48 P4Runtime calls that send headers alone: the controller, and one that starts, are served")
@pytest.mark.parametrize("method", METHODS)
def test_calls_without_a_request_keep_nobody_away(switch: Served, primary: Raw, method: str) -> None:
    with idle_calls(switch.address, [method]) as calls:
        refused(switch, "DEADLINE_EXCEEDED", len(calls) - request_guard.MAX_WAITING)
        all_goes_on(switch, primary)


def test_a_caller_has_a_deadline_for_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_guard, "WaitingCalls", lambda most: WaitingCalls(most, limit_s=0.2))
    switch = Served()
    with idle_calls(switch.address, ["/p4.v1.P4Runtime/Write", "/p4.v1.P4Runtime/StreamChannel"], 1) as calls:
        assert [code_of(next, call) for call in calls] == ["CANCELLED"] * 2
    refused(switch, "DEADLINE_EXCEEDED", 2)
    switch.close()


def test_a_stream_that_has_arbitrated_has_no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_guard, "WaitingCalls", lambda most: WaitingCalls(most, limit_s=0.2))
    switch = Served()
    with Raw(switch.address) as raw, idle_calls(switch.address, ["/p4.v1.P4Runtime/StreamChannel"], 1) as calls:
        raw.arbitrate()
        assert code_of(next, calls[0]) == "CANCELLED", "which began to wait later"
        assert raw.arbitrate().status.code == 0
    switch.close()


@pytest.mark.fault("P4Runtime Reads whose replies are not received: the controller, and one that starts, are served")
def test_replies_that_are_not_received_keep_nobody_away(switch: Served, primary: Raw) -> None:
    query = p4r.Entity()
    query.counter_entry.counter_id = next(iter(P4INFO.counters)).preamble.id
    cells = len(primary.read(query))
    request = p4r.ReadRequest(device_id=1, entities=[query] * (8_000 // cells))
    more = 4
    with grpc.insecure_channel(switch.address, [("grpc.http2.bdp_probe", 0)]) as channel:
        read = channel.unary_stream("/p4.v1.P4Runtime/Read", request_serializer=p4r.ReadRequest.SerializeToString)
        calls = [read(request) for _ in range(request_guard.MAX_OTHERS + more)]
        refused(switch, "RESOURCE_EXHAUSTED", more)
        all_goes_on(switch, primary)
        assert not any(call.done() and call.code() is grpc.StatusCode.OK for call in calls)


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[tuple[str, Bench]]:
    """The address of a switch that takes orders over TLS only."""
    bench = Bench(tmp_path)
    with served(security=bench.of("switch")) as switch:
        yield switch.address, bench


@pytest.mark.fault("P4Runtime calls with a worker's certificate that send headers alone: they are refused at once")
def test_the_role_is_checked_at_the_headers(locked: tuple[str, Bench]) -> None:
    address, bench = locked
    files: Any = bench.of("worker").client_credentials()
    options = [("grpc.ssl_target_name_override", "switch.p4reduce")]
    methods = ["/p4.v1.P4Runtime/Write", "/p4.v1.P4Runtime/Read", "/p4.v1.P4Runtime/StreamChannel"]
    with idle_calls(address, methods, 16, options, credentials=files) as calls:
        assert {code_of(next, call) for call in calls} == {"PERMISSION_DENIED"}


@pytest.mark.fault("200 idle connections and 200 half-open TLS handshakes: a controller connects")
def test_idle_connections_and_half_open_handshakes_keep_nobody_away(locked: tuple[str, Bench]) -> None:
    address, bench = locked
    with (
        idle_connections(address),
        idle_connections(address, HALF_A_HANDSHAKE),
        Raw(address, security=bench.of("controller")) as client,
    ):
        assert client.arbitrate().status.code == 0
