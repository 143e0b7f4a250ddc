"""Packets, digests and loss, with the software switch behind the client."""

from __future__ import annotations

import gc
import queue
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from p4reduce_controller.p4runtime.client import Client
from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime.entries import DigestConfig, TableEntry
from p4reduce_runtime.p4runtime.errors import P4RuntimeError, SwitchUnreachableError
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
    acknowledged = _watch_acknowledgements(switch)
    for _ in range(2):  # the second would be held back, were the first not acknowledged
        switch.switch.receive(300, SAMPLE)
        assert events.get(timeout=LIMIT_S) == ("sighting_t", [(5, 300)])
        acknowledged.get(timeout=LIMIT_S)


def _watch_acknowledgements(switch: Served) -> queue.SimpleQueue[int]:
    seen: queue.SimpleQueue[int] = queue.SimpleQueue()
    digests: Any = switch.server._committed.digests  # type: ignore[union-attr]
    acknowledge = digests.acknowledge

    def watched(digest_id: int, list_id: int) -> None:
        acknowledge(digest_id, list_id)
        seen.put(list_id)

    digests.acknowledge = watched
    return seen


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
