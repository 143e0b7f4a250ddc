"""Free ports of the loopback interface."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from p4reduce_lab.addresses import LOOPBACK, free_port, reserved_port
from rigs.ports import own_port


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
    assert free_port() < first and own_port() < first


def test_a_reserved_port_is_given_to_a_server_that_asks_for_it_alone() -> None:
    with reserved_port() as port, socket.socket() as server, socket.socket() as other:
        with pytest.raises(OSError, match="in use"):
            other.bind((LOOPBACK, port))
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((LOOPBACK, port))
        server.listen()
