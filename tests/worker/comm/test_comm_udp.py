"""The UDP transport: real sockets, the reference switch behind one of them."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from p4reduce import CollectiveTimeout, Communicator, Lease
from p4reduce.testing.reference_switch import ReferenceSwitch
from p4reduce.transport import UdpTransport
from p4reduce_contracts.wire import DEFAULT, MAX_COLUMNS, Geometry


class UdpSwitch:
    """The reference switch on a UDP socket; ranks are known by their address."""

    def __init__(self, world_size: int, slots: int) -> None:
        self.switch = ReferenceSwitch(DEFAULT, slots)
        self.switch.add_job(1, 7, world_size, 0, slots)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.ranks: list[tuple[str, int]] = []
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def serve(self) -> None:
        while payload_and_source := self.socket.recvfrom(2048):
            payload, source = payload_and_source
            if payload == b"stop":
                return
            for rank, answer in self.switch.process(self.ranks.index(source), payload):
                self.socket.sendto(answer, self.ranks[rank])

    def close(self) -> None:
        self.socket.sendto(b"stop", self.socket.getsockname())
        self.thread.join(10)
        self.socket.close()


def test_all_reduce_over_udp_sockets() -> None:
    world_size, slots = 3, 16
    switch = UdpSwitch(world_size, slots)
    transports = [UdpTransport("127.0.0.1", switch.port) for _ in range(world_size)]
    switch.ranks = [transport.address for transport in transports]
    switch.thread.start()
    tensors = [np.arange(10_000, dtype=np.int32) * (rank + 1) for rank in range(world_size)]
    comms = [
        Communicator(Lease(1, "udp", 7, rank, world_size, slots, 8, 32), transport, timeout_s=30)
        for rank, transport in enumerate(transports)
    ]
    with ThreadPoolExecutor(world_size) as pool:
        for result in pool.map(lambda comm: comm.all_reduce(tensors[comm.rank]), comms):
            assert (result == np.arange(10_000) * 6).all()
        list(pool.map(Communicator.close, comms))
    switch.close()


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
