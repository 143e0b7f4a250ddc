"""The controller limits the HELLOs of each port of the switch, so that a flood at one does not disturb the others."""

from __future__ import annotations

import queue
from collections.abc import Callable
from ipaddress import IPv4Address

import pytest
from msgspec.structs import replace

from conformance.bmv2 import SWITCH, Bmv2Target
from p4reduce_contracts.wire.numbers import DROP_REASONS
from p4reduce_controller.config import Config
from p4reduce_controller.p4runtime.client import Client
from p4reduce_controller.switches import pipeline as pipelines
from p4reduce_controller.switches.entry_writer import EntryWriter
from p4reduce_controller.switches.mac_table import MacTable
from p4reduce_controller.switches.program_names import V1MODEL
from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime.entries import MeterConfig, MeterEntry
from p4reduce_runtime.pipeline_folders import find
from rigs import wire
from rigs.fake_switch_client import FakeSwitchClient
from rigs.limits import LIMIT_S
from rigs.pipeline import SWITCH_IP, udp_frame

RATE = next(index for index, reason in DROP_REASONS.items() if reason == "RATE")
SLOW = MeterConfig(1, 5, 1, 5)


def entry_writer(client: Client, limit: MeterConfig) -> EntryWriter:
    config = Config()
    switch = replace(
        config.switches[0], address=str(IPv4Address(SWITCH_IP)), hellos_a_second=limit.cir, hello_burst=limit.cburst
    )
    pipeline = pipelines.read(find("small"))
    made = EntryWriter(client, switch, pipeline, MacTable(config, config.switches[0], pipeline.names))
    made.client.connect()
    return made


def check_limits(connect: Callable[[], Client], limits: Callable[[Client], list[MeterEntry]]) -> None:
    """A fresh switch gets the rates of the configuration, a switch that is taken over those of the new one."""
    for rates in (SLOW, MeterConfig(100, 200, 100, 200)):
        made = entry_writer(connect(), rates)
        if rates is SLOW:
            made.cold_start(7)
        else:
            assert made.warm_restart(7, [], 0) == frozenset()
        assert limits(made.client) == [MeterEntry(V1MODEL.hello_rate, port, rates) for port in range(512)]
        made.client.close()


def test_every_port_has_a_rate_from_the_first_and_after_reconciliation() -> None:
    switch = FakeSwitchClient()

    def limits(_: Client) -> list[MeterEntry]:
        return [entry for _, entry in switch.log if isinstance(entry, MeterEntry)][-512:]

    check_limits(lambda: switch, limits)


@pytest.mark.bmv2
@pytest.mark.skipif(SWITCH is None, reason="needs simple_switch_grpc on PATH")
def test_every_port_has_a_rate_on_bmv2() -> None:
    with Bmv2Target() as bmv2:
        check_limits(lambda: Client(bmv2.address, timeout_s=LIMIT_S), read_limits)


def read_limits(client: Client) -> list[MeterEntry]:
    cells = client.read(p4r.Entity(meter_entry={"meter_id": client.schema.meters[V1MODEL.hello_rate].id}))
    return [cell for cell in cells if isinstance(cell, MeterEntry)]


@pytest.mark.fault("a flood of HELLOs at a port of BMv2: a HELLO at another port reaches the controller")
@pytest.mark.bmv2
@pytest.mark.skipif(SWITCH is None, reason="needs simple_switch_grpc on PATH")
def test_a_flood_at_one_port_of_bmv2_does_not_affect_other_ranks() -> None:
    heard: queue.SimpleQueue[int] = queue.SimpleQueue()
    with Bmv2Target() as bmv2:
        made = entry_writer(Client(bmv2.address, timeout_s=LIMIT_S), SLOW)
        made.client.on_packet_in = lambda payload, metadata: heard.put(metadata["ingress_port"])
        made.cold_start(7)
        bmv2.pipeline_set()
        for _ in range(40):
            bmv2.arrive(1, udp_frame(0, wire.pack_hello(7, 5)))
        bmv2.arrive(2, udp_frame(1, wire.pack_hello(7, 6)))
        ports = [heard.get(timeout=LIMIT_S)]
        while ports[-1] != 2:
            ports.append(heard.get(timeout=LIMIT_S))
        dropped = made.drop_counters()["RATE"].packets
        made.client.close()
    assert ports.count(2) == 1
    assert 5 <= ports.count(1) <= 20, "the burst, and one a second"
    assert ports.count(1) + dropped == 40
