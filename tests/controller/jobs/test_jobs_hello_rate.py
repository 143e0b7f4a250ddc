"""The controller limits the HELLOs of each port of the switch, so that a flood at one does not disturb the others."""

from __future__ import annotations

import queue
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import p4reduce
from conformance.bmv2 import SWITCH, Bmv2Target
from p4reduce_contracts import wire
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.wire import DROP_REASONS
from p4reduce_controller.config import Config
from p4reduce_controller.forwarding import MacTable
from p4reduce_controller.jobs import pipeline as pipelines
from p4reduce_controller.jobs.entry_writer import EntryWriter
from p4reduce_controller.p4names import V1MODEL
from p4reduce_controller.p4runtime.client import Client
from p4reduce_controller.p4runtime.entries import MeterConfig, MeterEntry
from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.pipeline_folders import find
from rigs.limits import LIMIT_S
from rigs.pipeline import SWITCH_IP, udp_frame
from rigs.system import System, start_switch

RATE = next(index for index, reason in DROP_REASONS.items() if reason == "RATE")
SLOW = MeterConfig(1, 5, 1, 5)


def entry_writer(address: str, limit: MeterConfig) -> EntryWriter:
    config = Config()
    switch = replace(
        config.switches[0], address=str(IPv4Address(SWITCH_IP)), hellos_a_second=limit.cir, hello_burst=limit.cburst
    )
    pipeline = pipelines.read(find("small"))
    mac_table = MacTable(config, config.switches[0], pipeline.names)
    made = EntryWriter(Client(address, timeout_s=LIMIT_S), switch, pipeline, mac_table)
    made.client.connect()
    return made


def limits(made: EntryWriter) -> set[MeterConfig | None]:
    """The rates of all ports."""
    assert isinstance(made.client, Client)
    cells = made.client.read(p4r.Entity(meter_entry={"meter_id": made.client.schema.meters[V1MODEL.hello_rate].id}))
    meters = [cell for cell in cells if isinstance(cell, MeterEntry)]
    assert [meter.index for meter in meters] == list(range(512))
    return {meter.config for meter in meters}


def check_limits(address: str) -> None:
    """A fresh switch gets the rates of the configuration, a switch that is taken over those of the new one."""
    first = entry_writer(address, SLOW)
    first.start_afresh(7)
    assert limits(first) == {SLOW}
    first.client.close()
    second = entry_writer(address, MeterConfig(100, 200, 100, 200))
    assert second.take_over(7, [], 0) == frozenset()
    assert limits(second) == {MeterConfig(100, 200, 100, 200)}
    second.client.close()


@pytest.mark.processes
def test_every_port_has_a_rate_from_the_first_and_after_reconciliation(tmp_path: Path) -> None:
    switch = start_switch(tmp_path)
    try:
        check_limits(switch.address("P4Runtime"))
    finally:
        switch.end(signal.SIGKILL)


@pytest.mark.bmv2
@pytest.mark.skipif(SWITCH is None, reason="needs simple_switch_grpc on PATH")
def test_every_port_has_a_rate_on_bmv2() -> None:
    with Bmv2Target() as bmv2:
        check_limits(bmv2.address)


@pytest.mark.fault("a flood of HELLOs at a port of BMv2: a HELLO at another port reaches the controller")
@pytest.mark.bmv2
@pytest.mark.skipif(SWITCH is None, reason="needs simple_switch_grpc on PATH")
def test_a_flood_at_one_port_of_bmv2_does_not_affect_other_ranks() -> None:
    heard: queue.SimpleQueue[int] = queue.SimpleQueue()
    with Bmv2Target() as bmv2:
        made = entry_writer(bmv2.address, SLOW)
        made.client.on_packet_in = lambda payload, metadata: heard.put(metadata["ingress_port"])
        made.start_afresh(7)
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


def all_reduce(controller: str, rank: int) -> list[int]:
    with p4reduce.join("train", rank=rank, world_size=2, controller=controller, timeout_s=LIMIT_S) as comm:
        mine = np.full(600, 3 + rank, np.int32)
        return [int(comm.all_reduce(mine, timeout_s=LIMIT_S).sum()) for _ in range(10)]


@pytest.mark.fault(
    "a flood of HELLOs at a running system, every port with its rate: the other ports' ranks join and sum"
)
def test_a_flood_at_one_port_does_not_affect_other_ranks(system: System) -> None:
    """HELLOs beyond the rate do not reach the controller, whatever comes."""
    controller = system.controller.address("jobs on")
    host, port = system.switch.address("UDP").rsplit(":", 1)
    stop = threading.Event()

    def flood() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unknown_peer:
            while not stop.is_set():
                for nonce in range(50):
                    unknown_peer.sendto(wire.pack_hello(1, nonce), (host, int(port)))
                stop.wait(0.01)

    with JobClient(controller) as client, ThreadPoolExecutor(3) as pool:
        client.create_job("train", 2, slots=8)
        flooding = pool.submit(flood)
        try:
            deadline = time.monotonic() + LIMIT_S
            dropped = 0
            while dropped <= 100:  # of a starved switch the kernel drops most before it sees them
                assert time.monotonic() < deadline
                assert [*pool.map(lambda rank: all_reduce(controller, rank), range(2))] == [[600 * 7] * 10] * 2
                (dropped,) = (drop.count.packets for drop in client.stats().drops if drop.reason == "RATE")
        finally:
            stop.set()
        flooding.result(LIMIT_S)
