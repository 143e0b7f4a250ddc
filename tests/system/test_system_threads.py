"""Several threads run a switch's frames. Each locks the registers of its frame's slot, so no contribution is lost."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import threading
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from p4reduce_contracts import artifacts
from p4reduce_contracts.wire.frames import Frame, pack, unpack
from p4reduce_controller.config import SwitchConfig
from p4reduce_runtime import pipeline_folders
from p4reduce_runtime.records import zeros
from p4reduce_runtime.underlay import pack_hello
from p4reduce_switch.ports.udp import UdpUnderlay
from p4reduce_switch.program import Program, TargetOptions, batch
from p4reduce_switch.program.memory import LINE, LOCK_SPAN, LOCKS, Word
from p4reduce_switch.switch import Switch
from rigs.limits import LIMIT_S, wait_until
from rigs.pipeline import JOB, Host, admit, frame_with, from_host, grant_of, rank_host, switch_config
from rigs.secret import rank_secret

FOLDER = pipeline_folders.find("default")
CONFIG = (FOLDER / pipeline_folders.PROGRAM).read_bytes()
GEOMETRY = artifacts.geometry(FOLDER)
RANKS, SLOTS, ROUNDS = 4, 128, 20
UDP_SEGMENT, UDP_GRO, SO_RCVBUFFORCE = 103, 104, 33
BUFFER_BYTES = 8 << 20


@cache
def contribution(rank: int, slot: int) -> Frame:
    """A rank's frame with a block of random words in each column."""
    words = np.random.default_rng((rank, slot)).integers(0, 1 << 32, GEOMETRY.frame_words, np.uint32)
    data, size = words.astype(">u4").tobytes(), GEOMETRY.block_bytes
    blocks = {column: data[column * size : (column + 1) * size] for column in range(GEOMETRY.columns)}
    keys = tuple(slot * GEOMETRY.columns + column for column in blocks)
    return frame_with(GEOMETRY, blocks, keys=keys, slot=slot, secret=rank_secret(rank))


def contributions(ranks: int, round_: int = 0) -> NDArray[np.uint8]:
    """The payloads of a round, uint8 [SLOTS, ranks, bytes]."""
    frames = (contribution(rank, slot)._replace(round=round_) for slot in range(SLOTS) for rank in range(ranks))
    payloads = b"".join(pack(GEOMETRY, frame) for frame in frames)
    return np.frombuffer(payloads, np.uint8).reshape(SLOTS, ranks, -1)


def test_a_frame_waits_for_the_thread_that_has_its_slot() -> None:
    program, group = Program(CONFIG, TargetOptions(threads=2)), 1
    host = rank_host(0, rank_secret(0))
    admit(program, grant_of([host], slot_base=0, slot_count=SLOTS), switch_config())
    frames = [from_host(host, payload.tobytes()) for payload in contributions(1)]
    in_bytes = np.frombuffer(b"".join(frames), np.uint8)
    assert program.batch is not None
    run, of = zeros(batch.Batch), np.zeros((2, 1 << 20), np.uint8)
    arrived, results = zeros(batch.Frame, len(frames)), zeros(batch.Frame, len(frames))
    arrived["offset"], arrived["length"] = np.arange(len(frames)) * len(frames[0]), len(frames[0])
    arrived["port"] = 1
    thread_state = program.batch.threads[0]
    run["program"], run["frames"] = thread_state.words.ctypes.data, len(frames)
    run["in_bytes"], run["in_frames"] = in_bytes.ctypes.data, arrived.ctypes.data
    run["out_bytes"], run["out_size"] = of.ctypes.data, of.size
    run["out_frames"], run["out_capacity"] = results.ctypes.data, len(results)
    lock = ctypes.c_int64.from_address(int(thread_state.words[Word.LOCKS]) + group * LINE)
    lock.value = 1
    native = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(program.batch.address)
    thread = threading.Thread(target=native, args=(run.ctypes.data,), daemon=True)
    thread.start()
    wait_until(lambda: run["frames_run"][0] >= group * LOCK_SPAN // 2, "the frames before that slot do not run")
    thread.join(0.1)
    assert run["frames_run"][0] == group * LOCK_SPAN // 2 < SLOTS < LOCKS * LOCK_SPAN // 2
    lock.value = 0
    thread.join(LIMIT_S)
    assert run["frames_run"][0] == run["frames_out"][0] == SLOTS
    assert program.counters["MainIngress.contributions"].read(JOB)[0] == SLOTS, "of all threads"


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_sums_of_threads_that_share_slots_are_numpys(threads: int) -> None:
    switch, underlay = Switch(target=TargetOptions(threads=threads)), UdpUnderlay(("127.0.0.1", 0), threads=threads)
    switch.add_ports(underlay)
    switch.install(switch.load(CONFIG))
    switch.prepare()
    running = threading.Thread(target=switch.run)
    running.start()
    stack = contextlib.ExitStack()
    peers = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(RANKS)]
    try:
        for number, peer in enumerate(peers, 1):
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
            with contextlib.suppress(PermissionError):  # more than the system grants, for root alone
                peer.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
            peer.settimeout(LIMIT_S)
            peer.connect(underlay.address)
            peer.send(pack_hello(JOB, number))
            wait_until(lambda number=number: underlay.peers == number, "HELLOs are lost")
        loopback = 0x7F000001
        hosts = [
            Host(0x06 << 40 | loopback, loopback, peer.getsockname()[1], rank_secret(rank))
            for rank, peer in enumerate(peers)
        ]
        assert switch.program is not None
        with switch.lock:
            admit(switch.program, grant_of(hosts, slot_base=0, slot_count=SLOTS), SwitchConfig())
        first_round = contributions(RANKS)
        frame_bytes = first_round.shape[-1]
        sums = first_round[:, :, -4 * GEOMETRY.frame_words :].copy().view(">u4").sum(1, np.uint32)
        for peer in peers:
            peer.setsockopt(socket.SOL_UDP, UDP_SEGMENT, frame_bytes)
            peer.setsockopt(socket.SOL_UDP, UDP_GRO, 1)  # else a round of answers may not fit into the buffer
        for round_ in range(ROUNDS):
            by_rank = contributions(RANKS, round_)
            for first in range(0, SLOTS, 32):
                with switch.lock:
                    before = underlay.counters.datagrams_in
                    for rank, peer in enumerate(peers):  # whose runs begin at slots of other threads
                        places = np.arange(first, first + 32) + 21 * rank
                        peer.send(np.ascontiguousarray(by_rank[places % SLOTS, rank]).data)
                    assert underlay.counters.datagrams_in == before, "a thread runs frames without the lock"
            for peer in peers:
                got = b""
                while len(got) < SLOTS * frame_bytes:
                    got += peer.recv(65536)
                answers = [unpack(GEOMETRY, part.tobytes()) for part in np.frombuffer(got, np.uint8).reshape(SLOTS, -1)]
                assert sorted(answer.slot for answer in answers) == list(range(SLOTS))
                assert all(answer.blocks == sums[answer.slot].astype(">u4").tobytes() for answer in answers)
        with switch.lock:
            counted = switch.program.counters["MainIngress.contributions"].read(JOB)[0]
        assert counted == underlay.counters.datagrams_in - RANKS == ROUNDS * RANKS * SLOTS
        assert underlay._native_counters["datagrams_in"].all(), "each thread has had some"
    finally:
        stack.close()
        switch.stop()
        running.join(LIMIT_S)
        switch.close()
