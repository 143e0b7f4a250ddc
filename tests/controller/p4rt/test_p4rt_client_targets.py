"""The client against real targets: the software switch, and BMv2 where it is installed."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from p4reduce_contracts.p4runtime import codec
from p4reduce_contracts.p4runtime.entries import RegisterEntry
from p4reduce_controller.p4rt import (
    Client,
    CloneSession,
    CounterEntry,
    DigestConfig,
    DirectCounterEntry,
    DirectMeterEntry,
    MeterConfig,
    MeterEntry,
    MulticastGroup,
    NotPrimaryError,
    P4RuntimeError,
    PipelineError,
    ReadError,
    SchemaError,
    SwitchUnreachableError,
    TableEntry,
    WriteError,
    elections,
)
from p4reduce_lab.addresses import free_address
from rigs.p4rt import DEVICE_CONFIG, LIMIT_S, P4INFO, SCHEMA, bmv2, served

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


def test_entries_of_every_kind(client: Client) -> None:
    entries = [
        FORWARD,
        TableEntry(I + "prefix_table", {"h.sample.address": (0x0A000000, 8)}, I + "drop"),
        TableEntry(I + "prefix_table", {}, I + "forward", {"port": 0}),
        TableEntry(
            I + "ternary_table",
            {"h.sample.kind": (0x10, 0xF0), "h.sample.level": (1, 2), "h.sample.vlan": 0},
            I + "drop",
            priority=2,
        ),
        TableEntry(I + "ternary_table", {}, I + "drop", priority=1),
    ]
    client.insert(*entries)
    tables = ["exact_table", "prefix_table", "ternary_table"]
    found = [entry for table in tables for entry in client.read_table(table)]
    assert sorted(found, key=str) == sorted(entries, key=str)
    changed = TableEntry(FORWARD.table, FORWARD.match, I + "drop")
    client.modify(changed)
    assert client.read_table("exact_table") == [changed]
    client.delete(*entries)
    assert [client.read_table(table) for table in tables] == [[], [], []]


def test_default_entries(client: Client) -> None:
    flood = TableEntry(I + "exact_table", action=I + "flood", params={"group": 1}, is_default=True)
    client.modify(flood)
    assert client.read_default("exact_table") == flood
    client.modify(TableEntry("exact_table", is_default=True))
    assert client.read_default("exact_table").action == "NoAction"


def test_a_batch_reports_each_refused_update(client: Client) -> None:
    missing = TableEntry(I + "exact_table", {"h.sample.id": 9, "s.ingress_port": 2}, I + "drop")
    client.insert(FORWARD)
    with pytest.raises(WriteError) as caught:
        client.write([("insert", FORWARD), ("insert", missing), ("delete", FORWARD), ("delete", FORWARD)])
    assert [(f.index, f.operation, f.entry, f.code) for f in caught.value.failures] == [
        (0, "insert", FORWARD, "ALREADY_EXISTS"),
        (3, "delete", FORWARD, "NOT_FOUND"),
    ]
    assert client.read_table("exact_table") == [missing], "the others are applied"


def test_a_large_batch_keeps_its_errors(client: Client) -> None:
    missing = [TableEntry("prefix_table", {"h.sample.address": (i << 8, 24)}) for i in range(500)]
    with pytest.raises(WriteError) as caught:
        client.delete(*missing)
    assert len(caught.value.failures) == 500
    assert caught.value.only("NOT_FOUND")


def test_counters(client: Client) -> None:
    client.modify(CounterEntry("seen", 3, 7, 8))
    assert client.read_counter("seen", 3) == [CounterEntry(I + "seen", 3, 7, 8)]
    assert [entry.packets for entry in client.read_counter("seen")] == [0, 0, 0, 7, 0, 0, 0, 0]
    client.insert(FORWARD)
    key = TableEntry(FORWARD.table, FORWARD.match)
    client.modify(DirectCounterEntry(key, 5, 6))
    assert client.read_direct_counters("exact_table") == [DirectCounterEntry(key, 5, 6)]
    (entry,) = client.read_table("exact_table", counters=True)
    assert entry.counter is not None
    assert (entry.counter.packets, entry.counter.bytes) == (5, 6)


RATES = MeterConfig(1000, 100, 2000, 200)


def test_meters(client: Client) -> None:
    assert client.read_meters("pace") == [MeterEntry(I + "pace", index) for index in range(4)]
    client.modify(MeterEntry("pace", 1, RATES), MeterEntry("pace", 3, MeterConfig(1, 1, 1, 1)))
    assert client.read_meters("pace", 1) == [MeterEntry(I + "pace", 1, RATES)]
    assert [entry.config for entry in client.read_meters("pace")] == [None, RATES, None, MeterConfig(1, 1, 1, 1)]
    client.modify(MeterEntry("pace", 1))
    assert client.read_meters("pace", 1) == [MeterEntry(I + "pace", 1)], "unset rates are the default"


def test_direct_meters(client: Client) -> None:
    plain, metered = (TableEntry(I + "metered_table", {"h.sample.kind": kind}, I + "measure") for kind in (1, 2))
    client.insert(plain, replace(metered, meter=RATES))
    assert client.read_table("metered_table") == [plain, metered]
    assert client.read_table("metered_table", meters=True) == [plain, replace(metered, meter=RATES)]
    keys = [TableEntry(entry.table, entry.match) for entry in (plain, metered)]
    assert client.read_direct_meters("metered_table") == [
        DirectMeterEntry(keys[0]),
        DirectMeterEntry(keys[1], RATES),
    ]
    client.modify(DirectMeterEntry(keys[0], RATES), DirectMeterEntry(keys[1]))
    assert [meter.config for meter in client.read_direct_meters("metered_table")] == [RATES, None]
    client.modify(replace(plain, meter=MeterConfig(1, 2, 3, 4)))
    assert client.read_table("metered_table", meters=True) == [replace(plain, meter=MeterConfig(1, 2, 3, 4)), metered]


def test_refused_meters(client: Client) -> None:
    exact = TableEntry(FORWARD.table, FORWARD.match)
    client.insert(FORWARD)
    with pytest.raises(WriteError) as caught:
        client.write(
            [
                ("insert", MeterEntry("pace", 0, RATES)),
                ("delete", MeterEntry("pace", 0)),
                ("modify", MeterEntry("pace", -1, RATES)),
                ("modify", MeterEntry("pace", 0, MeterConfig(-1, 1, 1, 1))),
                ("modify", DirectMeterEntry(exact, RATES)),
                ("insert", DirectMeterEntry(exact, RATES)),
            ]
        )
    codes = [failure.code for failure in caught.value.failures]
    assert codes[3] in ("INVALID_ARGUMENT", "UNKNOWN"), "BMv2 has no word for rates that make no sense"
    assert codes[:3] + codes[4:] == ["INVALID_ARGUMENT"] * 5
    assert client.read_meters("pace", 0) == [MeterEntry(I + "pace", 0)]


def test_groups_sessions_and_digests(client: Client) -> None:
    group, session = MulticastGroup(300, ((1, 0), (2, 7), (3, 7))), CloneSession(5, ((1, 0),))
    config = DigestConfig("sighting_t", 10**6, 5, 10**9)
    assert client.read_digest_config("sighting_t") is None
    client.insert(group, session, config)
    assert client.read_groups() == [group]
    assert client.read_clone_sessions() == [session]
    assert client.read_digest_config("sighting_t") == config
    client.modify(MulticastGroup(300, ((9, 9),)))
    assert client.read_groups() == [MulticastGroup(300, ((9, 9),))]
    client.delete(group, session, config)
    assert client.read_groups() == []
    assert client.read_clone_sessions() == []
    assert client.read_digest_config("sighting_t") is None


def test_registers_are_read_from_every_target_but_bmv2(client: Client, request: pytest.FixtureRequest) -> None:
    cell = RegisterEntry(I + "memory", 1, 7)
    query = codec.encode(SCHEMA, replace(cell, value=None))
    if "bmv2" in request.node.callspec.id:
        with pytest.raises(ReadError) as caught:
            client.read(query)
        assert caught.value.code == "UNIMPLEMENTED"
    else:
        client.modify(cell)
        assert client.read(query) == [cell]


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
            first.reconnect()
        first.connect(require_primary=False)
        first.get_pipeline()
        assert first.read_table("exact_table") == []
        with pytest.raises(NotPrimaryError, match="lection id"):
            Client(address, election_id=(0, 2)).connect()


def test_a_client_that_raises_its_election_id_becomes_primary(address: str) -> None:
    with Client(address, election_id=(0, 2**63)) as other:
        with Client(address, election_id=None) as ours:
            assert (ours.is_primary, ours._connection.election_id) == (True, (0, 2**63 + 1))
            with Client(address, election_id=None) as second:
                assert second.is_primary
            ours.reconnect()
            assert ours.is_primary
        other.close()


@pytest.mark.fault("the largest election id, then a disconnect: the controller becomes primary again")
def test_the_largest_id_can_be_taken_after_its_owner_has_left(address: str) -> None:
    with (
        Client(address, election_id=elections.LARGEST),
        pytest.raises(NotPrimaryError, match="the largest election id there is.*restart the switch"),
    ):
        Client(address, election_id=None).connect()
    with ExitStack() as stack:
        client = Client(address, election_id=None)
        stack.callback(client.close)
        _until(client.connect)
        assert client.is_primary


def test_a_lost_switch_is_reported_and_found_again(address: str, request: pytest.FixtureRequest) -> None:
    """The connection is cut; a new one works at once."""
    lost: queue.SimpleQueue[P4RuntimeError] = queue.SimpleQueue()
    with Client(address) as one:
        one.on_lost = lost.put
        stream: Any = one._connection._stream
        stream._call.cancel()
        assert isinstance(lost.get(timeout=LIMIT_S), SwitchUnreachableError)
        assert not one.is_primary
        with pytest.raises(SwitchUnreachableError):
            one._connection.send(None)
        _until(one.reconnect)
        one.set_pipeline(P4INFO, DEVICE_CONFIG)
        assert lost.empty()
    assert lost.empty(), "close is not a loss"


def _until(connect: Callable[[], None]) -> None:
    """The switch may need a moment to see that the old stream is gone."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            return connect()
        except NotPrimaryError:
            assert time.monotonic() < deadline, "still refused"


@pytest.mark.processes
def test_an_unreachable_switch_is_an_error_within_the_deadline() -> None:
    with pytest.raises(SwitchUnreachableError, match="is the switch running"):
        Client(free_address(), timeout_s=0.2).connect()


def test_calls_without_a_connection_are_errors() -> None:
    one = Client("127.0.0.1:1")
    one.use_schema(SCHEMA)
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
