"""Free ports of the loopback interface."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from p4reduce_lab.addresses import LOOPBACK, free_addresses, free_port
from rigs.ports import own_port

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_port_that_is_taken_is_not_free(kind: socket.SocketKind) -> None:
    with ExitStack() as stack:
        ports = [own_port(kind) for _ in range(3)]
        for port in ports[:2]:
            stack.enter_context(socket.socket(socket.AF_INET, kind)).bind((LOOPBACK, port))
        assert free_port(kind, ports) == ports[2]
        with pytest.raises(OSError, match="end other programs"):
            free_port(kind, ports[:2])


def test_free_ports_are_below_those_that_the_system_gives_away() -> None:
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        first = int(file.read().split()[0])
    if first != 32_768:
        pytest.skip(f"this machine gives ports from {first} on away, Linux by itself from 32768 on")
    ports = [free_port(), own_port(), *(int(one.rpartition(":")[2]) for one in free_addresses(20))]
    assert len(set(ports)) == len(ports) and all(port < first for port in ports)
