"""How the compiled pump sends: what belongs together leaves together."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from p4reduce.codecs import Int32
from p4reduce.protocol.call import Call
from p4reduce.protocol.channel import make_channel
from p4reduce.protocol.collective import Collective
from p4reduce.protocol.initial_state import Records
from p4reduce.protocol.rtt import RoundTrip
from p4reduce.testing.reference_switch import ReferenceSwitch
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire.calls import CodecId, Kind
from p4reduce_contracts.wire.geometry import DEFAULT
from p4reduce_runtime import datagrams
from p4reduce_runtime.underlay import ENCAP_BYTES
from rigs.limits import LIMIT_S

COLUMNS, BLOCK_WORDS, HEADER_WORDS = 8, 32, 16
SLOTS = 32


@pytest.fixture
def path(peer: socket.socket) -> Iterator[tuple[Any, socket.socket]]:
    """A channel, and the socket at its other end."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
        here.connect(peer.getsockname())
        peer.connect(here.getsockname())
        here.setblocking(False)
        datagrams.accept_runs(peer)
        channel = make_channel([here.fileno()], plain=False)
        if channel is None:
            pytest.skip("needs numba and 64-bit Linux")
        yield channel, peer
        channel.close()


def engine_of(slots: int) -> Any:
    """The state of a collective of one rank that has not begun."""
    tensor = np.ones(slots * COLUMNS * BLOCK_WORDS, np.int32)
    lease = Lease(1, "test", 7, 0, 1, slots, COLUMNS, BLOCK_WORDS)
    call = Call(0, Kind.ALL_REDUCE, CodecId.INT32, 0, len(tensor))
    source = Int32(tensor).bind(1, BLOCK_WORDS, False)
    return Collective(Records(lease, source.n_blocks), source, call, 10.0).engine


@pytest.mark.parametrize(
    ("together", "order"),
    [(9, [5, 4, 1, 7, 3, 0, 8, 6, 2]), (4, [5, 7, 8, 6, 4, 1, 3, 2, 0]), (1, [8, 7, 6, 5, 4, 3, 2, 1, 0])],
)
def test_frames_of_equal_length_are_sent_as_one_gso_run(
    path: tuple[Any, socket.socket], together: int, order: list[int]
) -> None:
    channel, there = path
    blocks = [3, 8, 0, 3, 8, 8, 0, 3, 1]
    count = len(blocks)
    channel.make_room(count)
    engine = engine_of(count)
    sizes = [4 * (HEADER_WORDS + block * BLOCK_WORDS) for block in blocks]
    engine.slots["frame_bytes"] = sizes
    engine.frames[:] = np.arange(count)[:, None]
    engine.contributions["slot"] = range(count)[::-1]
    engine.stats["rounds"], engine.loss["in_flight"], engine.path["smoothed_rtt"] = count + 1, 4 * together, 0.0005
    channel.pump.send_frames(channel.sockets, engine, count)
    runs = []
    while select.select([there], [], [], 0 if runs else LIMIT_S)[0]:
        runs.append(np.frombuffer(there.recv(1 << 16), np.uint32))
    # of those together the longest first, in the order of the answers; a run's last frame may be a shorter one
    sent = [int(slot) for run in runs for slot in run[np.r_[True, run[1:] != run[:-1]]]]
    assert sent == order
    assert together < count or len(runs) < 5
    stats = engine.stats[0]
    assert (stats["frames_up"], stats["bytes_up"]) == (count, sum(sizes) + count * ENCAP_BYTES)


def test_a_burst_keeps_its_order_at_first_and_where_rounds_take_long(path: tuple[Any, socket.socket]) -> None:
    """One rank, a slot's blocks at random: lengths differ, and the frames are answered in another order."""
    channel, there = path
    random = np.random.default_rng(1)
    blocks = (random.random(3 * SLOTS * COLUMNS) < 0.5).astype(np.int32)
    tensor = np.repeat(blocks, BLOCK_WORDS)
    switch = ReferenceSwitch(DEFAULT, SLOTS)
    switch.add_job(1, 7, 1, 0, SLOTS)
    lease = Lease(1, "test", 7, 0, 1, SLOTS, COLUMNS, BLOCK_WORDS)
    round_trip = RoundTrip()
    round_trip.table[0] = 100.0, 0.0, 100.0, 1.0, 0.0
    call = Call(0, Kind.ALL_REDUCE, CodecId.INT32, 0, len(tensor))
    source = Int32(tensor).bind(1, BLOCK_WORDS, False)
    collective = Collective(Records(lease, source.n_blocks, round_trip=round_trip), source, call, 10.0)
    collective._loss["max_pto"] = LIMIT_S  # no frame is repeated, however busy the machine is
    collective.begin(time.monotonic())
    collective.run(channel, time.monotonic())
    sent = _frames(there, SLOTS)
    for _ in range(2):
        came = sorted(sent, key=lambda frame: frame[7] * 7 % 5)  # slots 0, 5, ... first
        for frame in came:
            for _, answer in switch.process(0, frame):
                there.send(answer)
        collective.run(channel, time.monotonic() + 0.1)
        sent = _frames(there, SLOTS)[:SLOTS]
        assert len({len(frame) for frame in sent}) > 3
        assert [frame[7] for frame in sent] == [frame[7] for frame in came]


def _frames(there: socket.socket, count: int) -> list[bytes]:
    """Receive so many frames, in runs or one by one."""
    frames: list[bytes] = []
    while len(frames) < count:
        run, ancillary, _, _ = there.recvmsg(1 << 16, datagrams.ANCILLARY_BYTES)
        frames += datagrams.split(run, ancillary)
    return frames


def test_frames_are_reordered_within_a_quarter_of_a_milliseconds_answers(pump: Any) -> None:
    engine = engine_of(128)
    engine.loss["in_flight"], engine.path["smoothed_rtt"] = 128, 0.001
    engine.stats["rounds"] = 128
    assert pump.frames_together(engine, 0) == 1, "the first round with blocks"
    engine.stats["rounds"] += 1
    found = []
    for smoothed_s in (np.nan, 0.0002, 0.001, 0.004, 0.1):
        engine.path["smoothed_rtt"] = smoothed_s
        found.append(pump.frames_together(engine, 0))
    assert found == [1, 32, 32, 8, 1]
