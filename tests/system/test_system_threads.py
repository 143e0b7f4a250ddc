"""Several threads run a switch's frames. Each locks the registers of its frame's slot, so no contribution is lost."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest

from p4reduce_contracts import artifacts
from p4reduce_contracts.wire.frames import unpack
from p4reduce_controller.config import SwitchConfig
from p4reduce_lab.bench import load
from p4reduce_lab.bench.udp_load import UdpPeers
from p4reduce_runtime import pipeline_folders
from p4reduce_runtime.records import zeros
from p4reduce_switch.ports.udp import UdpUnderlay
from p4reduce_switch.program import Program, TargetOptions, batch
from p4reduce_switch.program.memory import LINE, LOCK_SPAN, LOCKS, Word
from p4reduce_switch.switch import Switch
from rigs.limits import LIMIT_S, wait_until
from rigs.pipeline import admit

FOLDER = pipeline_folders.find("default")
CONFIG = (FOLDER / pipeline_folders.PROGRAM).read_bytes()
GEOMETRY = artifacts.geometry(FOLDER)
RANKS, SLOTS, ROUNDS = 4, 128, 20


def test_a_frame_waits_for_the_thread_that_has_its_slot() -> None:
    program, group = Program(CONFIG, TargetOptions(threads=2)), 1
    grant = load.make_grant(load.ethernet_addresses(1), SLOTS)
    admit(program, grant, SwitchConfig())
    frames = load.Contributions(GEOMETRY, grant, SwitchConfig(), encapsulated=True)
    assert program.batch is not None
    run, of = zeros(batch.Batch), np.zeros((2, 1 << 20), np.uint8)
    arrived, results = zeros(batch.Frame, len(frames)), zeros(batch.Frame, len(frames))
    arrived["offset"], arrived["length"] = np.arange(len(frames)) * frames.frame_bytes, frames.frame_bytes
    arrived["port"] = 1
    thread_state = program.batch.threads[0]
    run["program"], run["frames"] = thread_state.words.ctypes.data, len(frames)
    run["in_bytes"], run["in_frames"] = frames.bytes.ctypes.data, arrived.ctypes.data
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
    assert program.counters["MainIngress.contributions"].read(load.JOB)[0] == SLOTS, "of all threads"


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_sums_of_threads_that_share_slots_are_numpys(threads: int) -> None:
    switch, underlay = Switch(target=TargetOptions(threads=threads)), UdpUnderlay(("127.0.0.1", 0), threads=threads)
    switch.add_ports(underlay)
    switch.install(switch.load(CONFIG))
    switch.prepare()
    running = threading.Thread(target=switch.run)
    running.start()
    peers = UdpPeers(*underlay.address, RANKS, runs=True)
    try:
        wait_until(lambda: underlay.peers == RANKS, "HELLOs are lost")
        grant = load.make_grant(peers.addresses(), SLOTS)
        assert switch.program is not None
        with switch.lock:
            admit(switch.program, grant, SwitchConfig())
        peers.prepare(GEOMETRY, grant)
        frames = peers._frames
        words = frames.bytes[:, -4 * GEOMETRY.columns * GEOMETRY.block_words :].copy().view(">u4")
        sums = words.reshape(SLOTS, RANKS, -1).sum(1, np.uint32)
        for _ in range(ROUNDS):
            frames.move_on()
            by_rank = frames.bytes.reshape(SLOTS, RANKS, -1)
            for first in range(0, SLOTS, 32):
                with switch.lock:
                    before = underlay.counters.datagrams_in
                    for rank, opened in enumerate(peers._sockets):  # whose runs begin at slots of other threads
                        places = np.arange(first, first + 32) + 21 * rank
                        opened.send(np.ascontiguousarray(by_rank[places % SLOTS, rank]).data)
                    assert underlay.counters.datagrams_in == before, "a thread runs frames without the lock"
            for opened in peers._sockets:
                got = b""
                while len(got) < SLOTS * frames.frame_bytes:
                    got += opened.recv(65536)
                answers = [unpack(GEOMETRY, part.tobytes()) for part in np.frombuffer(got, np.uint8).reshape(SLOTS, -1)]
                assert sorted(answer.slot for answer in answers) == list(range(SLOTS))
                assert all(answer.blocks == sums[answer.slot].astype(">u4").tobytes() for answer in answers)
        with switch.lock:
            counted = switch.program.counters["MainIngress.contributions"].read(load.JOB)[0]
        assert counted == underlay.counters.datagrams_in - RANKS == ROUNDS * RANKS * SLOTS
        assert underlay._native_counters["datagrams_in"].all(), "each thread has had some"
    finally:
        peers.close()
        switch.stop()
        running.join(LIMIT_S)
        switch.close()
