"""Frames on real interfaces: the software switch and BMv2 do the same with them."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from p4reduce_controller.p4runtime import Client, DigestConfig, MulticastGroup, TableEntry
from p4reduce_switch.p4runtime import Server
from p4reduce_switch.ports.ethernet import EthernetPorts
from p4reduce_switch.program import Config, Program
from p4reduce_switch.switch import Switch
from rigs.limits import LIMIT_S
from rigs.p4rt import DEVICE_CONFIG, P4INFO, bmv2

pytestmark = pytest.mark.root
SAMPLE = (5).to_bytes(6, "big") + bytes(5) + b"\x88\xb5" + b"\x02" + b"a sample, long enough for Ethernet" * 2


@contextlib.contextmanager
def softswitch(interface: str, load_program: Any) -> Iterator[str]:
    switch = Switch()
    switch.add_ports(EthernetPorts({1: interface}))
    switch.prepare()
    server = Server(switch, "127.0.0.1:0", load_program)
    server.start()
    thread = threading.Thread(target=switch.run)
    thread.start()
    yield f"127.0.0.1:{server.port}"
    server.stop()
    switch.stop()
    thread.join(LIMIT_S)
    switch.close()


class OneByOne(Program):
    """A program that the native loop does not run, as those that clone."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.batch = None


@pytest.fixture(params=[OneByOne, Program, pytest.param("bmv2", marks=pytest.mark.bmv2)])
def address(request: pytest.FixtureRequest, pair: tuple[str, str]) -> Iterator[str]:
    with bmv2(f"1@{pair[0]}") if request.param == "bmv2" else softswitch(pair[0], request.param) as one:
        yield one


@pytest.fixture
def events() -> queue.SimpleQueue[Any]:
    return queue.SimpleQueue()


@pytest.fixture
def client(address: str, events: queue.SimpleQueue[Any]) -> Iterator[Client]:
    one = Client(address, timeout_s=LIMIT_S)
    one.on_packet_in = lambda payload, metadata: events.put((payload, metadata))
    one.on_digest = lambda name, rows: events.put((name, rows))
    with one:
        one.set_pipeline(P4INFO, DEVICE_CONFIG)
        yield one


@pytest.fixture
def host(pair: tuple[str, str]) -> Iterator[socket.socket]:
    """The other end of the link."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003)) as one:
        one.bind((pair[1], 0))
        one.settimeout(LIMIT_S)
        yield one


def test_packets_in_and_out(client: Client, host: socket.socket, events: queue.SimpleQueue[Any]) -> None:
    client.modify(TableEntry("exact_table", action="punt", params={"reason": 9}, is_default=True))
    host.send(SAMPLE)
    assert events.get(timeout=LIMIT_S) == (SAMPLE, {"ingress_port": 1, "reason": 9})
    client.packet_out(SAMPLE[::-1], 1)
    assert arrived(host, SAMPLE[::-1])


def test_digests_and_counters(client: Client, host: socket.socket, events: queue.SimpleQueue[Any]) -> None:
    client.insert(DigestConfig("sighting_t"))
    client.insert(TableEntry("exact_table", {"h.sample.id": 5, "s.ingress_port": 1}, "report"))
    host.send(SAMPLE)
    assert events.get(timeout=LIMIT_S) == ("sighting_t", [(5, 1)])
    level = SAMPLE[12] & 7
    assert client.read_counter("seen", level)[0].packets == 1
    assert client.read_counter("seen", level)[0].bytes == len(SAMPLE)


def test_a_multicast_group_replicates(client: Client, host: socket.socket) -> None:
    client.insert(MulticastGroup(2, ((1, 0), (1, 7))))
    client.modify(TableEntry("exact_table", action="flood", params={"group": 2}, is_default=True))
    host.send(SAMPLE)
    assert arrived(host, SAMPLE)
    assert arrived(host, SAMPLE)


def arrived(host: socket.socket, frame: bytes) -> bool:
    """Waits for the frame; times out when it does not come. What the host itself sent does not count."""
    while True:
        found, address = host.recvfrom(2000)
        if found == frame and address[2] != socket.PACKET_OUTGOING:
            return True
