"""The client against real targets, the software switch and BMv2 where it is installed; and over TLS."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from p4reduce_controller.p4runtime.client import Client
from p4reduce_controller.p4runtime.stream import LARGEST_ID
from p4reduce_runtime.p4runtime.entries import TableEntry
from p4reduce_runtime.p4runtime.errors import (
    NotPrimaryError,
    P4RuntimeError,
    PipelineError,
    ReadError,
    SchemaError,
    SwitchUnreachableError,
    SwitchWithoutTlsError,
    WriteError,
)
from rigs import entity_text
from rigs.certificates import Bench
from rigs.limits import LIMIT_S, wait_until
from rigs.p4rt import DEVICE_CONFIG, P4INFO, SCHEMA, bmv2, served
from rigs.ports import own_address

I = "SampleIngress."  # noqa: E741
FORWARD = TableEntry(I + "exact_table", {"h.sample.id": 5, "s.ingress_port": 2}, I + "forward", {"port": 1})


@pytest.fixture(params=["softswitch", pytest.param("bmv2", marks=pytest.mark.bmv2)])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "bmv2":
        with bmv2() as one:
            yield one
    else:
        with served() as two:
            yield two.address


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address) as one:
        one.set_pipeline(P4INFO, DEVICE_CONFIG)
        yield one


def test_a_program_is_set_and_found_again(address: str) -> None:
    with Client(address) as one:
        assert one.get_pipeline() is None
        with pytest.raises(PipelineError):
            one.insert(FORWARD)
        one.set_pipeline(P4INFO, DEVICE_CONFIG, cookie=9)
        assert one.capabilities().startswith("1.")
    with Client(address) as other:
        found = other.get_pipeline()
        assert found is not None
        assert (found.p4info, found.device_config, found.cookie) == (P4INFO, DEVICE_CONFIG, 9)
        other.insert(FORWARD)
        other.set_pipeline(P4INFO, DEVICE_CONFIG)
        assert other.read_table("exact_table") == []


def test_a_bad_program_is_a_pipeline_error(address: str) -> None:
    with Client(address) as one, pytest.raises(PipelineError, match="refused the program"):
        one.set_pipeline(P4INFO, b"no program")


def test_a_large_batch_keeps_its_errors(client: Client) -> None:
    missing = [TableEntry("prefix_table", {"h.sample.address": (i << 8, 24)}) for i in range(500)]
    with pytest.raises(WriteError) as caught:
        client.delete(*missing)
    assert len(caught.value.failures) == 500
    assert caught.value.only("NOT_FOUND")


def test_entities_are_written_as_they_are_and_other_kinds_are_not_read(client: Client) -> None:
    session = entity_text.entity(SCHEMA, entity_text.clone_session(5, (1, 0)))
    client.insert(session)
    with pytest.raises(ReadError, match="clone_session_entry is not supported by this client"):
        client.read(session)


def test_a_larger_election_id_takes_over(address: str) -> None:
    told: queue.SimpleQueue[bool] = queue.SimpleQueue()
    with ExitStack() as stack:
        first = Client(address)
        first.on_primary = told.put
        stack.enter_context(first).set_pipeline(P4INFO, DEVICE_CONFIG)
        second = stack.enter_context(Client(address, election_id=(0, 2)))
        assert told.get(timeout=LIMIT_S) is False
        assert (first.is_primary, second.is_primary) == (False, True)
        with pytest.raises(NotPrimaryError):
            first.insert(FORWARD)
        with pytest.raises(NotPrimaryError, match=r"election id \(0, 2\)"):
            _reconnect(first)
        first.connect(require_primary=False)
        first.get_pipeline()
        assert first.read_table("exact_table") == []
        with pytest.raises(NotPrimaryError, match="lection id"):
            Client(address, election_id=(0, 2)).connect()


def test_a_client_that_raises_its_election_id_becomes_primary(address: str) -> None:
    with Client(address, election_id=(0, 2**63)) as other:
        with Client(address, election_id=None) as ours:
            assert (ours.is_primary, ours.election_id) == (True, (0, 2**63 + 1))
            with Client(address, election_id=None) as second:
                assert second.is_primary
            _reconnect(ours)
            assert ours.is_primary
        other.close()


@pytest.mark.fault("the largest election id, then a disconnect: the controller becomes primary again")
def test_the_largest_id_can_be_taken_after_its_owner_has_left(address: str) -> None:
    with (
        Client(address, election_id=LARGEST_ID),
        pytest.raises(NotPrimaryError, match="the largest election id there is.*restart the switch"),
    ):
        Client(address, election_id=None).connect()
    with ExitStack() as stack:
        client = Client(address, election_id=None)
        stack.callback(client.close)
        wait_until(lambda: _becomes_primary(client))


def test_a_lost_switch_is_reported_and_found_again(address: str, request: pytest.FixtureRequest) -> None:
    """The connection is cut; a new one works at once."""
    lost: queue.SimpleQueue[P4RuntimeError] = queue.SimpleQueue()
    with Client(address) as one:
        one.on_lost = lost.put
        stream: Any = one._stream
        stream._call.cancel()
        assert isinstance(lost.get(timeout=LIMIT_S), SwitchUnreachableError)
        assert not one.is_primary
        with pytest.raises(SwitchUnreachableError):
            one._send(None)
        wait_until(lambda: _becomes_primary(one))
        one.set_pipeline(P4INFO, DEVICE_CONFIG)
        assert lost.empty()
    assert lost.empty(), "close is not a loss"


def _reconnect(client: Client) -> None:
    client.close()
    client.connect()


def _becomes_primary(client: Client) -> bool:
    """Connect again; the switch may need a moment to see that the old stream is gone."""
    with suppress(NotPrimaryError):
        _reconnect(client)
    return client.is_primary


def test_an_unreachable_switch_is_an_error_within_the_deadline() -> None:
    with pytest.raises(SwitchUnreachableError, match="is the switch running"):
        Client(own_address(), timeout_s=0.2).connect()


def test_calls_without_a_connection_are_errors() -> None:
    one = Client("127.0.0.1:1")
    one._schema = SCHEMA
    with pytest.raises(SwitchUnreachableError, match="not connected"):
        one.insert(FORWARD)
    with pytest.raises(SwitchUnreachableError, match="not connected"):
        one.packet_out(b"x", 1)
    with pytest.raises(SchemaError, match="no field colour"):
        one.packet_out(b"x", 1, colour=1)
    with pytest.raises(SchemaError, match="egress_port"):
        one.packet_out(b"x", 512)
    one.close()
    one.close()


@pytest.fixture
def locked(bench: Bench) -> Iterator[str]:
    """The address of a switch that takes orders over TLS only."""
    with served(security=bench.of("switch")) as switch:
        yield switch.address


def test_a_controller_becomes_primary(bench: Bench, locked: str) -> None:
    with Client(locked, security=bench.of("controller")) as client:
        assert client.is_primary


def test_a_client_without_tls_does_not_connect(locked: str) -> None:
    with pytest.raises(SwitchUnreachableError):
        Client(locked, timeout_s=2.0).connect()


def test_a_switch_without_tls_is_named(bench: Bench) -> None:
    with (
        served() as switch,
        pytest.raises(SwitchWithoutTlsError, match=rf"{switch.address} answers without TLS: start it with --tls-ca"),
    ):
        Client(switch.address, security=bench.of("controller")).connect()


@pytest.mark.fault("a false switch: the controller refuses the connection")
def test_a_controller_refuses_a_server_without_the_role_switch(bench: Bench) -> None:
    """A worker's certificate, at the switch's address, does not pass for a switch."""
    with served(security=bench.of("worker")) as switch, pytest.raises(SwitchUnreachableError):
        Client(switch.address, timeout_s=2.0, security=bench.of("controller")).connect()


def test_the_error_of_a_worker_as_controller_names_the_role(bench: Bench, locked: str) -> None:
    client = Client(locked, timeout_s=LIMIT_S, security=bench.of("worker"))
    with pytest.raises(P4RuntimeError, match="does not name controller.p4reduce") as caught:
        client.connect()
    assert not isinstance(caught.value, NotPrimaryError)
