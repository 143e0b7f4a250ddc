"""The UDP transport: real sockets, the reference switch behind one of them."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from p4reduce import CollectiveTimeout, Communicator, Lease
from p4reduce.testing.udp_switch import UdpSwitch, connect
from p4reduce.transport import UdpTransport
from p4reduce_contracts.wire import MAX_COLUMNS, Geometry


def test_all_reduce_over_udp_sockets() -> None:
    world_size, slots = 3, 16
    tensors = [np.arange(10_000, dtype=np.int32) * (rank + 1) for rank in range(world_size)]
    with UdpSwitch(world_size, slots) as switch, ThreadPoolExecutor(world_size) as pool:
        comms = [connect(switch.port, rank, world_size, slots, timeout_s=30) for rank in range(world_size)]
        for result in pool.map(lambda comm: comm.all_reduce(tensors[comm.rank]), comms):
            assert (result == np.arange(10_000) * 6).all()
        list(pool.map(Communicator.close, comms))


def test_nobody_at_the_switchs_port_is_a_timeout_that_says_so() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    lease = Lease(1, "udp", 7, 0, 1, 4, 8, 32, switch_port=port)
    with (
        Communicator(lease, UdpTransport("127.0.0.1", port)) as comm,
        pytest.raises(CollectiveTimeout) as caught,
    ):
        comm.all_reduce(np.ones(1000, np.float32), timeout_s=0.5)
    assert f"127.0.0.1:{port} answered nothing" in str(caught.value)


def test_receive_returns_a_burst() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", 0))
        transport = UdpTransport(*peer.getsockname())
        assert transport.receive(0) == []
        transport.send([b"a"])
        for number in range(5):
            peer.sendto(bytes([number]), peer.recvfrom(16)[1] if number == 0 else transport.address)
        assert transport.receive(1.0) == [bytes([number]) for number in range(5)]
        transport.close()


def test_the_largest_legal_frame_is_received_whole() -> None:
    largest = Geometry(MAX_COLUMNS, 64).max_frame_bytes  # geometry.p4 allows blocks of up to 64 words
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", 0))
        transport = UdpTransport(*peer.getsockname())
        for size in (largest, largest + 1):
            peer.sendto(bytes(size), transport.address)
            assert [len(frame) for frame in transport.receive(10)] == [size]
        transport.close()
