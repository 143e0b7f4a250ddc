"""Frames on real interfaces: the software switch and BMv2 do the same with them."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from conformance.replay import Controller
from p4reduce_runtime.p4runtime.entries import DigestConfig, MulticastGroup, TableEntry
from p4reduce_switch.p4runtime import Server
from p4reduce_switch.ports.ethernet import EthernetPorts
from p4reduce_switch.program import Config, Program
from p4reduce_switch.switch import Switch
from rigs.limits import LIMIT_S
from rigs.p4rt import bmv2, config

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


@pytest.mark.parametrize("target", ["embedded", pytest.param("bmv2", marks=pytest.mark.bmv2)])
def test_frames_pass_between_an_interface_a_program_and_a_controller(target: str, pair: tuple[str, str]) -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as host:
        host.bind((pair[1], 3))
        host.settimeout(LIMIT_S)
        if target == "bmv2":
            with bmv2(f"1@{pair[0]}") as address:
                check(address, host)
        else:
            for load_program in (OneByOne, Program):
                with softswitch(pair[0], load_program) as address:
                    check(address, host)


def check(address: str, host: socket.socket) -> None:
    """Packet-in and packet-out, a multicast group, a digest and a counter."""
    with Controller(address) as client:
        client.set_config(config=config())
        client.do("MODIFY", TableEntry("exact_table", action="punt", params={"reason": 9}, is_default=True))
        host.send(SAMPLE)
        client.wait_for(1, 0)
        assert client.packet_ins == [({"ingress_port": 1, "reason": 9}, SAMPLE)]
        client.packet_out(SAMPLE[::-1], 1)
        assert arrived(host, SAMPLE[::-1])
        client.insert(MulticastGroup(2, ((1, 0), (1, 7))))
        client.do("MODIFY", TableEntry("exact_table", action="flood", params={"group": 2}, is_default=True))
        host.send(SAMPLE)
        assert arrived(host, SAMPLE)
        assert arrived(host, SAMPLE)
        client.insert(DigestConfig("sighting_t"))
        client.insert(TableEntry("exact_table", {"h.sample.id": 5, "s.ingress_port": 1}, "report"))
        host.send(SAMPLE)
        client.wait_for(1, 1)
        assert list(client.digests) == [("sighting_t", (5, 1))]
        counted = client.counters()[client.schema.counters["seen"].name]
        assert counted[str(SAMPLE[12] & 7)] == (3, 3 * len(SAMPLE))


def arrived(host: socket.socket, frame: bytes) -> bool:
    """Waits for the frame; times out when it does not come. What the host itself sent does not count."""
    while True:
        found, address = host.recvfrom(2000)
        if found == frame and address[2] != socket.PACKET_OUTGOING:
            return True
