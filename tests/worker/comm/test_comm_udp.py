"""The UDP transport: real sockets, the reference switch behind one of them."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from p4reduce import CollectiveTimeout, Communicator, Lease
from p4reduce.protocol.collective import load_kernels
from p4reduce.runs import Runs
from p4reduce.testing.udp_switch import UdpSwitch, connect
from p4reduce.transport import UdpTransport
from p4reduce_contracts.wire import MAX_COLUMNS, RESULT, SMALL, Frame, Geometry, pack

pytestmark = pytest.mark.usefixtures("each_engine")


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


@pytest.mark.parametrize("chosen", ["auto", "on", "off"])
def test_frames_leave_in_runs_where_the_switch_sees_each_of_them(chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if load_kernels() is None:
        pytest.skip("only the compiled engine sends runs")
    monkeypatch.setenv("P4REDUCE_SEGMENTATION", chosen)
    tensor = np.arange(20_000, dtype=np.int32)
    with UdpSwitch(1, 16) as switch, connect(switch.port, 0, 1, 16, timeout_s=30) as comm:
        for _ in range(3):
            assert (comm.all_reduce(tensor) == tensor).all()
        channel = comm.session._channel
        assert channel is not None
        assert channel.plain == (chosen == "off")
        assert switch.switch.counts["duplicates"] >= 2 * (chosen == "auto")


class Swallower(UdpTransport):
    """Loses what leaves as a run."""

    runs = 0

    def send_run(self, frames: Sequence[bytes]) -> bool:
        self.runs += 1
        return True


def test_frames_leave_alone_where_runs_are_lost() -> None:
    answered = pack(SMALL, Frame(RESULT, 1, 0, 7, 0, 0, 0, 0, 0, (0,) * SMALL.columns, b""))
    lease = Lease(1, "udp", 7, 0, 1, 4, SMALL.columns, SMALL.block_words)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", 0))
        transport = Swallower(*peer.getsockname())
        runs = Runs({})
        peer.sendto(answered, transport.address)  # one answer is not two
        tries = 0
        while runs.allowed is None:
            runs.try_path(transport, lease, answered, 0.02)
            tries += 1
        transport.close()
    assert (runs.allowed, tries, transport.runs) == (False, 3, 3)


def test_a_wrong_choice_of_runs_is_an_error_that_says_so() -> None:
    with pytest.raises(ValueError, match="P4REDUCE_SEGMENTATION is 'yes'; it has to be auto, on or off"):
        Runs({"P4REDUCE_SEGMENTATION": "yes"})
