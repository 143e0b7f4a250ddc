"""The HELLOs of each port are limited, so that a flood at one does not disturb the others; restarts on BMv2."""

from __future__ import annotations

import queue
from ipaddress import IPv4Address
from typing import Any

import pytest

from conformance.bmv2 import SWITCH, Bmv2Target
from p4reduce_contracts.wire.numbers import DROP_REASONS
from p4reduce_controller.p4runtime.client import Client
from p4reduce_controller.switches.entry_writer import EntryWriter
from p4reduce_controller.switches.program_names import V1MODEL
from p4reduce_runtime.p4runtime.entries import MeterConfig, MeterEntry
from rigs import wire
from rigs.fake_switch_client import FakeSwitchClient, check_restarts, make_entry_writer
from rigs.limits import LIMIT_S
from rigs.p4rt import bmv2 as served_bmv2
from rigs.pipeline import SWITCH_IP, udp_frame

RATE = next(index for index, reason in DROP_REASONS.items() if reason == "RATE")
SLOW = MeterConfig(1, 5, 1, 5)


def entry_writer(client: Any, limit: MeterConfig) -> EntryWriter:
    return make_entry_writer(
        client, address=str(IPv4Address(SWITCH_IP)), hellos_a_second=limit.cir, hello_burst=limit.cburst
    )


def test_every_port_has_a_rate_from_the_first_and_after_reconciliation() -> None:
    """A fresh switch gets the rates of the configuration, a switch that is taken over those of the new one."""
    switch = FakeSwitchClient()
    for rates in (SLOW, MeterConfig(100, 200, 100, 200)):
        made = entry_writer(switch, rates)
        if rates is SLOW:
            made.cold_start(7)
        else:
            assert made.warm_restart(7, [], 0) == frozenset()
        limits = [entry for _, entry in switch.log if isinstance(entry, MeterEntry)][-512:]
        assert limits == [MeterEntry(V1MODEL.hello_rate, port, rates) for port in range(512)]
        made.client.close()


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


@pytest.mark.fault(
    "SIGKILL or SIGTERM of the controller of a BMv2 switch, then another one: BMv2 keeps entries and cookie; "
    "the jobs continue"
)
@pytest.mark.bmv2
def test_a_restarted_controller_restores_its_jobs_on_bmv2() -> None:
    """Frames come by interfaces there, so HELLO is not sent here: what counts is that BMv2 keeps cookie and entries."""
    with served_bmv2() as address:
        check_restarts(lambda: make_entry_writer(Client(address, timeout_s=LIMIT_S))).client.close()
