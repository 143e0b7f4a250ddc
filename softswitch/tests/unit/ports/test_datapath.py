"""The native loop over UDP: it serves programs with and without a native function, and lets others have the lock."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import random
import select
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from p4reduce_runtime import datagrams
from p4reduce_runtime.underlay import UPLINK_PORT, pack_hello
from p4reduce_switch.datapath import BATCH_FRAMES
from p4reduce_switch.ports import Gso, PortError
from p4reduce_switch.ports.udp import UdpUnderlay
from p4reduce_switch.program import ExecutionError, PacketTrace
from p4reduce_switch.program.state.replication import Replication
from p4reduce_switch.switch import Switch, Watch
from rigs.batch_of_python import PythonBatch, Reflector
from rigs.limits import LIMIT_S

LOOPBACK = 0x7F000001
FAILS, REPORTS, PUNTS, NOWHERE, FLOODS, SPOILT, LONG, SILENT, TELLS_ALL = range(9)
"""The values of a payload's first byte to which the program reacts; other frames are sent back."""


def reply(frame: bytes, payload: bytes) -> bytes:
    """A frame back to its sender with another payload; checksums are not checked on the way out."""
    ip = frame[14:16] + (28 + len(payload) & 0xFFFF).to_bytes(2, "big") + frame[18:26] + frame[30:34] + frame[26:30]
    udp = frame[36:38] + frame[34:36] + (8 + len(payload)).to_bytes(2, "big") + frame[40:42]
    return frame[6:12] + frame[:6] + frame[12:14] + ip + udp + payload


class Mixture:
    """A program that does a bit of everything, and numbers what it sends."""

    def __init__(self) -> None:
        self.on_digest: Any = None
        self.action_profiles: dict[str, Any] = {}
        self.queues = None
        self.replication = Replication()
        self.latest: dict[int, bytes] = {}
        self.seen = 0

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        self.seen += 1
        self.latest[port] = frame
        kind, number = frame[42] if len(frame) > 42 else SILENT, self.seen.to_bytes(4, "big")
        if kind == SILENT:
            return []
        back = reply(frame, number + frame[42:])
        if kind == FAILS:
            raise ExecutionError("as it was asked to")
        if kind == REPORTS:
            self.on_digest("seen", [(port, self.seen)])
            return [(port, back)]
        if kind == TELLS_ALL:
            self.on_digest("seen", [(port, self.seen)])
            return [(port, back), (510, number)]
        if kind == PUNTS:
            return [(port, back), (510, number + frame[42:]), (port, back)]
        if kind == NOWHERE:
            return [(509, back), (0, back), (700, back), (port, back)]
        if kind == FLOODS:
            return [(to, reply(latest, number + frame[42:])) for to, latest in self.latest.items()] * 3
        if kind == SPOILT:
            return [(port, back[:20]), (port, b""), (port, frame), (port, back + b"padding")]
        if kind == LONG:
            return [(port, reply(frame, bytes(65507))), (port, reply(frame, bytes(65510))), (port, back)]
        return [(port, back)]


class Running:
    """A switch with UDP ports that runs in a thread; a `native` program has a batch."""

    def __init__(
        self, program: Any, native: bool = True, gso: Gso = Gso.AUTO, uplink: tuple[str, int] | None = None
    ) -> None:
        self.switch, self.underlay = Switch(), UdpUnderlay(("127.0.0.1", 0), uplink=uplink, gso=gso)
        self.switch.add_ports(self.underlay)
        self.packet_ins: list[bytes] = []
        self.digests: list[Any] = []
        self.switch.on_packet_in = self.packet_ins.append
        self.switch.on_digest = lambda *digest: self.digests.append(digest)
        self.program = PythonBatch(program) if native and not hasattr(program, "batch") else program
        self.switch.install(self.program)
        self.thread = threading.Thread(target=self.switch.run)
        self.thread.start()
        self.peers: list[socket.socket] = []

    def peer(self, runs: bool = False) -> socket.socket:
        """A peer that has said HELLO, and has seen what the program answered."""
        peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        datagrams.enlarge_buffers(peer, 8 << 20)
        peer.bind(("127.0.0.1", 0))
        peer.connect(self.underlay.address)
        if runs:
            datagrams.accept_runs(peer)
        peer.send(pack_hello(1, len(self.peers)))
        assert select.select([peer], [], [], LIMIT_S)[0]
        peer.recv(100)
        self.peers.append(peer)
        self.until(lambda: self.underlay.counters.datagrams_out == len(self.peers))
        return peer

    @staticmethod
    def until(condition: Any) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def stop(self) -> None:
        self.switch.stop()
        self.thread.join(LIMIT_S)
        assert not self.thread.is_alive()

    def close(self) -> None:
        self.stop()
        self.switch.close()
        for peer in self.peers:
            peer.close()


@contextlib.contextmanager
def running(
    program: Any, native: bool = True, gso: Gso = Gso.AUTO, uplink: tuple[str, int] | None = None
) -> Iterator[Running]:
    one = Running(program, native, gso, uplink)
    try:
        yield one
    finally:
        one.close()


class Traceable(PythonBatch):
    """A program whose frames can be traced; it has traced `traced`."""

    traces, traced = True, 0

    def process(self, port: int, frame: bytes, *handlers: Any) -> Any:
        self.traced += len(handlers)
        for handler in handlers:
            handler(PacketTrace(0, port, []))
        return super().process(port, frame)


def test_a_thousand_traces_on_and_off_under_load_lose_no_frame() -> None:
    """The native loop gives its frames to Python and takes them back: each is answered once, in order."""
    program = Traceable(Mixture())
    with running(program) as one:
        peer, sent, answered = one.peer(), 0, 0
        taken: list[PacketTrace] = []
        for _ in range(1000):
            watch = Watch(taken.append)
            one.switch.watch(watch)
            for _ in range(3):
                peer.send(bytes((200,)) + sent.to_bytes(4, "big"))
                sent += 1
            if sent % 6:
                one.switch.unwatch(watch)
            while answered < sent:
                assert select.select([peer], [], [], LIMIT_S)[0], "a frame was lost"
                for reply in received(peer):
                    assert reply[5:] == answered.to_bytes(4, "big")
                    answered += 1
            one.switch.unwatch(watch)
        assert program.traced == len(taken) > 0
        assert sum(program.batches) > 0, "the native loop ran frames between two traces"
        assert program.seen == sent + 1  # and HELLO


def send(peer: socket.socket, payloads: Sequence[bytes], run: bool) -> None:
    """Send to the switch, as super-datagrams where neighbours have the same length, or one by one."""
    if not run:
        for payload in payloads:
            peer.send(payload)
        return
    import p4reduce_runtime.datagrams.kernels as compiled

    kept = np.frombuffer(b"".join(payloads) + b"\0", np.uint8)
    lengths = np.array([len(payload) for payload in payloads], np.int64)
    addresses = kept.ctypes.data + np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    io = datagrams.socket_state(peer.fileno())
    assert compiled.send(io, datagrams.destination()[0], addresses, lengths, 0, len(payloads)) == len(payloads)
    assert io["lost"][0] == 0


def received(peer: socket.socket) -> list[bytes]:
    """All that has come until now, datagram by datagram."""
    found: list[bytes] = []
    while select.select([peer], [], [], 0)[0]:
        run, ancillary, _, _ = peer.recvmsg(70000, datagrams.ANCILLARY_BYTES)
        found += datagrams.split(run, ancillary)
    return found


def mixed_traffic(seed: int, peers: int) -> list[tuple[int, bool, list[bytes]]]:
    """(Peer, in runs, payloads) in the order in which they are sent."""
    seeded = random.Random(seed)
    turns = []
    for _ in range(60):
        payloads: list[bytes] = []
        for _ in range(seeded.randint(1, 4)):
            kind = seeded.choice([FAILS, REPORTS, PUNTS, NOWHERE, FLOODS, SPOILT, SILENT, *[200] * 8])
            length = seeded.choice([0, 1, 3, 41, 42, 43, 500, 1072, 1072, 1073])
            payload = (bytes([kind]) + seeded.randbytes(length))[: length or seeded.randint(0, 1)]
            payloads += [payload] * seeded.choice([1, 1, 2, 20])
        turns.append((seeded.randrange(peers), seeded.random() < 0.7, payloads))
    turns.append((0, False, [bytes([LONG]) + bytes(10), bytes([SILENT]) + bytes(65506), bytes([200]) + bytes(60000)]))
    return turns


def results(native: bool, seed: int) -> Any:
    """All that can be seen of a switch from outside after some traffic."""
    with running(Mixture(), native) as one:
        peers = [one.peer(runs=number % 2 == 0) for number in range(3)]
        count = 3
        for number, run, payloads in mixed_traffic(seed, 3):
            send(peers[number], payloads, run)
            count += len(payloads)
            one.until(lambda: one.underlay.counters.datagrams_in == count)  # noqa: B023
        send(peers[0], [bytes([200]) + b"the end"], run=False)
        answers: list[list[bytes]] = [[], [], []]
        one.until(lambda: answers[0].extend(received(peers[0])) or answers[0][-1:] and answers[0][-1][5:] == b"the end")
        one.stop()  # and everything is counted
        answers[1:] = [received(peer) for peer in peers[1:]]
        counted = one.switch.frames_failed, one.switch.frames_to_no_port, one.switch.packet_ins
        return answers, one.packet_ins, one.digests, dataclasses.asdict(one.underlay.counters), counted


@pytest.mark.parametrize("seed", range(3))
def test_programs_with_and_without_a_native_function_send_equal_frames(seed: int) -> None:
    native, python = results(True, seed), results(False, seed)
    assert native[3] == python[3]
    assert native == python
    assert all(native[4]) and native[3]["not_for_peer"] and native[3]["send_errors"], "every kind of frame came up"


def test_frames_are_run_in_batches_and_the_order_of_each_peer_is_kept() -> None:
    with running(Mixture()) as one:
        peers = [one.peer(runs=True), one.peer(runs=False)]
        payloads = [bytes([200]) + number.to_bytes(4, "big") + bytes(500) for number in range(1000)]
        for start in range(0, 1000, 50):
            for peer in peers:
                send(peer, payloads[start : start + 50], run=True)
        one.until(lambda: one.underlay.counters.datagrams_out == 2 + 2000)
        for peer in peers:
            assert [payload[4:] for payload in received(peer)] == payloads
        assert max(one.program.batches) > 1
        assert max(one.program.batches) <= BATCH_FRAMES


def test_the_reflector_returns_every_datagram() -> None:
    with running(Reflector()) as one:
        peers = [one.peer(runs=number < 2) for number in range(3)]
        payloads = [bytes([number % 256]) * 1072 for number in range(640)] + [b"the last is shorter", b"", b"x" * 60000]
        for peer in peers:
            send(peer, payloads, run=True)
        one.until(lambda: one.underlay.counters.datagrams_in == 3 * len(payloads) + 3)
        with one.switch.lock:
            assert [received(peer) for peer in peers] == [payloads] * 3


def test_without_gso_every_datagram_is_sent_by_itself() -> None:
    def longest(gso: Gso, asked: bool = False) -> int:
        with running(Reflector(), gso=gso) as one:
            others, peer = one.peer(runs=True), one.peer(runs=True)
            if asked:
                peer.send(b"")
                assert peer.recv(70000) == b""
            send(peer, [bytes(1000)] * 50, run=True)
            one.until(lambda: one.underlay.counters.datagrams_out == 52 + asked)
            length = len(peer.recv(70000))
            send(others, [bytes(1000)] * 50, run=True)
            one.until(lambda: one.underlay.counters.datagrams_out == 102 + asked)
            assert (len(others.recv(70000)) > 1000) == (gso is Gso.AUTO), "what one peer asks for is of no other"
            return length

    assert longest(Gso.OFF) == 1000
    assert longest(Gso.AUTO) > 1000
    assert longest(Gso.AUTO, asked=True) == 1000, "an empty datagram asks for that"


class ToParent:
    """A program that sends what came from the parent to port 1, and everything else to the parent."""

    def __init__(self, parent: tuple[str, int]) -> None:
        self.on_digest: Any = None
        self.action_profiles: dict[str, Any] = {}
        self.queues = None
        self.replication = Replication()
        self.parent = ipaddress.IPv4Address(parent[0]).packed, parent[1].to_bytes(2, "big")
        self.child = self.parent

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        if port != UPLINK_PORT:
            self.child = frame[26:30], frame[34:36]
        (ip, udp), to = (self.child, 1) if port == UPLINK_PORT else (self.parent, UPLINK_PORT)
        return [(to, frame[:26] + frame[30:34] + ip + frame[36:38] + udp + frame[38:])]


@pytest.mark.parametrize("native", [True, False])
def test_the_uplink_carries_frames_both_ways_and_runs_up(native: bool) -> None:
    payloads = [number.to_bytes(4, "big") + bytes(996) for number in range(40)]
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as parent,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as child,
    ):
        parent.bind(("127.0.0.1", 0))
        datagrams.accept_runs(parent)
        with running(ToParent(parent.getsockname()), native, uplink=parent.getsockname()) as one:
            child.connect(one.underlay.address)
            send(child, [pack_hello(1, 2), *payloads], run=True)
            one.until(lambda: one.underlay.counters.datagrams_out == 41)
            sizes, arrived = [], []
            while select.select([parent], [], [], 0)[0]:
                run, ancillary, _, _ = parent.recvmsg(70000, datagrams.ANCILLARY_BYTES)
                sizes.append(len(run))
                arrived += datagrams.split(run, ancillary)
            assert arrived == [pack_hello(1, 2), *payloads]
            assert max(sizes) > 1000
            parent.connect(one.underlay.address)
            send(parent, payloads, run=True)
            one.until(lambda: one.underlay.counters.datagrams_out == 81)
            assert received(child) == payloads


def test_all_datagrams_of_a_run_that_begins_with_hello_are_processed() -> None:
    with running(Mixture()) as one, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as newcomer:
        newcomer.connect(one.underlay.address)
        rest = [bytes([200]) + bytes([number]) * 23 for number in range(50)]
        send(newcomer, [b"no HELLO, 24 bytes long.", pack_hello(1, 2), *rest], run=True)
        one.until(lambda: one.underlay.counters.datagrams_in == 51)
        with one.switch.lock:
            assert [payload[4:] for payload in received(newcomer)][-50:] == rest
        assert one.underlay.counters.no_hello == 1


def test_buffers_grow_for_a_frame_with_many_copies() -> None:
    with running(Mixture()) as one:
        peer = one.peer()
        one.program.max_bytes, one.program.copies = 8 << 20, 5000
        send(peer, [bytes([200]) + bytes(99)] * 10, run=True)
        one.until(lambda: one.underlay.counters.datagrams_out == 1 + 10)
        assert len(received(peer)) == 10


def test_a_program_installed_during_a_batch_processes_the_rest() -> None:
    """The rest of a batch runs on whichever program is there by then."""

    for replacement in (Mixture(), PythonBatch(Mixture())):
        with running(Mixture()) as one:
            peer = one.peer()
            one.switch.on_digest = lambda *_: one.switch.install(replacement)  # noqa: B023
            send(peer, [bytes([REPORTS]) + bytes(99), *[bytes([200]) + bytes(99)] * 20], run=True)
            one.until(lambda: one.underlay.counters.datagrams_out == 1 + 21)
            assert replacement.seen == 20, "those that came after"
            send(peer, [bytes([200]) + bytes(7)] * 3, run=True)
            one.until(lambda: one.underlay.counters.datagrams_out == 1 + 24)
            assert len(received(peer)) == 24


def test_under_load_the_loop_and_other_threads_both_get_the_lock() -> None:
    with running(Reflector()) as one:
        ending = threading.Event()

        def flood(peer: socket.socket) -> None:
            while not ending.is_set():
                send(peer, [bytes(1000)] * 64, run=True)
                received(peer)

        floods = [threading.Thread(target=flood, args=(one.peer(runs=True),)) for _ in range(2)]
        for thread in floods:
            thread.start()
        served: set[int] = set()

        def take_a_turn() -> int:
            with one.switch.lock:
                served.add(one.underlay.counters.datagrams_in)
            return len(served)

        one.until(lambda: take_a_turn() > 20)  # the loop had its turns in between
        ending.set()
        for thread in floods:
            thread.join(LIMIT_S)


def test_a_closed_peer_does_not_stop_the_others() -> None:
    with running(Mixture()) as one:
        gone, stays = one.peer(), one.peer()
        send(stays, [bytes([FLOODS])], run=False)
        gone.close()
        for number in range(20):
            send(stays, [bytes([FLOODS]), bytes([200, number])], run=False)
        one.until(lambda: one.underlay.counters.datagrams_in == 2 + 1 + 40)
        with one.switch.lock:
            assert [payload[5] for payload in received(stays) if payload[4] == 200] == list(range(20))


def test_without_compiled_kernels_the_switch_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p4reduce_runtime.datagrams.supported", lambda: False)
    one = Switch()
    one.add_ports(UdpUnderlay(("127.0.0.1", 0)))
    with pytest.raises(PortError, match="takes 64-bit Linux"):
        one.prepare()
    one.close()


@pytest.mark.parametrize("native", [False, True])
def test_digests_of_a_frame_are_sent_before_the_next_frame_runs(native: bool) -> None:
    with running(Mixture(), native) as one:
        told: list[str] = []
        one.switch.on_digest = lambda *_: told.append("digest")
        one.switch.on_packet_in = lambda _frame: told.append("packet-in")
        one.peer().send(bytes([TELLS_ALL, 0]))
        one.until(lambda: len(told) == 2)
    assert told == ["digest", "packet-in"]
