"""The UDP transport: real sockets, the reference switch behind one of them."""

from __future__ import annotations

import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import p4reduce
from p4reduce import Communicator
from p4reduce.compressors import AdaComp
from p4reduce.compressors.all_reduce import begin
from p4reduce.errors import CollectiveTimeoutError
from p4reduce.paths.gso import GsoProbe
from p4reduce.paths.switch import SwitchPath
from p4reduce.testing.udp_switch import UdpSwitch, connect
from p4reduce.transport import UdpTransport
from p4reduce_contracts.jobs.lease import Lease, LeasedSwitch
from p4reduce_contracts.wire.frames import Frame, pack, unpack
from p4reduce_contracts.wire.geometry import DEFAULT, SMALL, Geometry
from p4reduce_contracts.wire.numbers import MAX_COLUMNS, RESULT
from p4reduce_lab.udp_relay import PathConditions, UdpRelay
from p4reduce_runtime.datagrams import RUN_BYTES, SHORT_RUN_BYTES
from rigs.limits import LIMIT_S


@pytest.mark.fault("no process at the switch's port: CollectiveTimeoutError that names the cause")
def test_a_closed_port_of_the_switch_is_named_in_the_timeout() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    lease = Lease(1, "udp", 7, 0, 1, 4, 8, 32, switches=(LeasedSwitch(port=port),))
    with Communicator(lease, UdpTransport("127.0.0.1", port)) as comm, pytest.raises(CollectiveTimeoutError) as caught:
        comm.all_reduce(np.ones(1000, np.float32), timeout_s=0.5)
    assert f"127.0.0.1:{port} answered nothing" in str(caught.value)


def test_the_largest_legal_frame_is_received_whole_and_the_paths_mtu_is_known(peer: socket.socket) -> None:
    largest = Geometry(MAX_COLUMNS, 64).max_frame_bytes  # geometry.p4 allows blocks of up to 64 words
    transport = UdpTransport(*peer.getsockname())
    for size in (largest, largest + 1):
        peer.sendto(bytes(size), transport.address)
        assert [len(frame) for frame in transport.receive(10)] == [size]
    assert transport.path_mtu == min(int(Path("/sys/class/net/lo/mtu").read_text()), 0xFFFF)
    transport.close()


@pytest.mark.usefixtures("pump")
@pytest.mark.parametrize("chosen", ["auto", "on", "off"])
def test_frames_are_sent_with_gso_where_the_switch_receives_each(chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P4REDUCE_SEGMENTATION", chosen)
    tensor = np.arange(20_000, dtype=np.int32)
    with UdpSwitch(1, 16) as switch, connect(switch.port, 0, 1, 16, timeout_s=LIMIT_S) as comm:
        for _ in range(3):
            assert (comm.all_reduce(tensor) == tensor).all()
        channel = comm.path.channel
        assert channel is not None
        assert channel.sends_runs == (chosen != "off")
        assert switch.switch.duplicates >= 2 * (chosen == "auto")


@pytest.mark.fault(
    "frames that arrive damaged again and again: no GSO from then on in this job, one warning, right sums"
)
@pytest.mark.usefixtures("pump")
def test_gso_ends_where_frames_arrive_damaged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("P4REDUCE_SEGMENTATION", raising=False)
    tensor = np.arange(20_000, dtype=np.int32)
    with (
        UdpSwitch(1, 16) as switch,
        UdpRelay(("127.0.0.1", switch.port), PathConditions(ways=("down",)), 1) as path,
        connect(path.address[1], 0, 1, 16, timeout_s=LIMIT_S) as comm,
    ):
        channel = comm.path.channel
        assert channel is not None
        while not channel.sends_runs:
            assert (comm.all_reduce(tensor) == tensor).all()
        path.conditions = replace(path.conditions, flip=0.3)
        damaged = []
        while len(damaged) < 5:
            before = comm.stats.copy()
            assert (comm.all_reduce(tensor) == tensor).all()
            spent = comm.stats - before
            if spent.corrupt or spent.malformed:
                damaged.append(not channel.sends_runs)
        assert damaged == [False, False, True, True, True]
        assert any(" up " in line and line.endswith(" passed ") for line in path.log()), (
            "it asks the switch for no runs"
        )
        fresh = SwitchPath(comm.lease, comm.over_switch.transport, before=comm.path)
        assert fresh.channel is not None and not fresh.channel.sends_runs, "in the job's next epoch too"
        fresh.close_channel()
        path.conditions = PathConditions()
    assert [record.getMessage() for record in caplog.records].count("segmentation off") == 1


def test_gso_that_was_chosen_stays_on() -> None:
    gso = GsoProbe({"P4REDUCE_SEGMENTATION": "on"})
    assert not any(gso.saw_damage() for _ in range(9)) and gso.allowed


class Swallower(UdpTransport):
    """Loses what leaves as a run."""

    runs = 0

    def send_run(self, frames: Sequence[bytes]) -> bool:
        self.runs += 1
        return True


def test_frames_are_sent_singly_where_gso_runs_are_lost(peer: socket.socket) -> None:
    answered = pack(SMALL, Frame(RESULT, 1, 0, 7, 0, 0, 0, 0, 0, (0,) * SMALL.columns, b""))
    transport = Swallower(*peer.getsockname())
    gso = GsoProbe({})
    peer.sendto(answered, transport.address)  # one answer is not two
    tries = 0
    while gso.allowed is None:
        gso.probe(transport, SMALL, 0, answered, 0.02)
        tries += 1
    transport.close()
    assert (gso.allowed, tries, transport.runs) == (False, 3, 3)


@pytest.mark.parametrize("count", [50, 14, 1])
def test_gso_runs_are_long_after_a_long_one_was_received(peer: socket.socket, count: int) -> None:
    geometry = Geometry(8, 32)
    blocks = bytes(geometry.columns * geometry.block_bytes)
    answered = pack(geometry, Frame(RESULT, 1, 255, 7, 0, 0, 0, 0, 0, (0,) * geometry.columns, blocks))
    transport = Swallower(*peer.getsockname())
    gso = GsoProbe({"P4REDUCE_SEGMENTATION": "on"})
    peer.connect(transport.address)
    sizes = [(17, 103, len(answered).to_bytes(2, sys.byteorder))]  # SOL_UDP, UDP_SEGMENT
    tries = 0
    while not gso.known:
        for _ in range(60 // count):
            peer.sendmsg([answered] * count, sizes)
        gso.probe(transport, geometry, 0, answered, 0.02)
        tries += 1
    transport.close()
    assert (gso.longest, tries) == ((RUN_BYTES, 1) if count == 50 else (SHORT_RUN_BYTES, 3))


def test_an_unknown_value_of_p4reduce_segmentation_is_an_error() -> None:
    with pytest.raises(ValueError, match="P4REDUCE_SEGMENTATION is 'yes'; it has to be auto, on or off"):
        GsoProbe({"P4REDUCE_SEGMENTATION": "yes"})


def test_over_sockets_results_may_come_late_and_damaged() -> None:
    """Slot 0's opening RESULT, which all others wait for, comes last; and one block is damaged once on its way down."""
    tensor = np.arange(20_000, dtype=np.int32)
    with UdpSwitch(1, 16) as switch, connect(switch.port, 0, 1, 16, timeout_s=LIMIT_S) as comm:
        process, held = switch.switch.process, list[tuple[int, bytes]]()
        damaged = False

        def disturbed(rank: int, payload: bytes) -> list[tuple[int, bytes]]:
            nonlocal damaged
            answers = process(rank, payload)
            frame = unpack(DEFAULT, payload)
            if frame.round == 0 and frame.slot == 0 and not held:
                held.extend(answers)
                return []
            if frame.round == 0 and frame.slot == 15:
                return [*answers, *held]
            if frame.round == 1 and frame.slot == 3 and not damaged:
                damaged = True
                return [(to, answer[:-1] + bytes([answer[-1] ^ 1])) for to, answer in answers]
            return answers

        switch.switch.process = disturbed  # type: ignore[method-assign]
        assert (comm.all_reduce(tensor) == tensor).all()
        assert comm.stats.corrupt == 1
        assert held and damaged


def test_over_sockets_different_calls_are_an_error_and_a_refusal_leaves_ranks_in_step() -> None:
    tensor = np.arange(10_000, dtype=np.float32)
    with UdpSwitch(3, 16, drop=0.05, seed=3) as switch, ThreadPoolExecutor(3) as pool:
        comms = [connect(switch.port, rank, 3, 16, timeout_s=LIMIT_S) for rank in range(3)]

        def errors(given: Callable[[int], np.ndarray]) -> list[str]:
            calls = [pool.submit(comm.all_reduce, given(comm.rank)) for comm in comms]
            return [type(call.exception(LIMIT_S)).__name__ for call in calls]

        for _ in range(2):
            refused = errors(lambda rank: np.where(tensor == 5, np.float32(np.nan if rank == 1 else 5), tensor))
            assert refused == ["PeerRefusedError", "NotFiniteError", "PeerRefusedError"]
            for result in pool.map(lambda comm: comm.all_reduce(tensor), comms):
                assert (result == 3 * tensor).all()
        assert errors(lambda rank: tensor[: 9000 + rank]) == ["CollectiveMismatchError"] * 3
        for comm in comms:
            comm.close(wait=False)


def test_few_frames_lie_between_a_sum_and_the_first_byte_on_the_wire(
    pump: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sends, depths = pump.run, list[int]()
    package = str(Path(p4reduce.__file__).parent)

    def run(*arguments: object) -> int:
        depths.append(sum(frame.filename.startswith(package) for frame in traceback.extract_stack()))
        return sends(*arguments)

    with UdpSwitch(1, 4) as switch, connect(switch.port, 0, 1, 4, timeout_s=LIMIT_S) as comm:
        monkeypatch.setattr(pump, "run", run)
        assert comm.all_reduce(np.ones(1000, np.float32)).tolist() == [1] * 1000
        assert depths[0] == 5
        depths.clear()
        begin(comm, AdaComp(), {"weight": torch.ones(200, 100)}).finish()
        assert depths[0] == 7
        monkeypatch.undo()
