"""The UDP underlay: the headers around datagrams, who is which port, and what is dropped."""

from __future__ import annotations

import ipaddress
import logging
import os
import select
import socket
from collections.abc import Iterator
from random import Random

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from p4reduce_runtime.underlay import HELLO_BYTES, UPLINK_PORT, pack_hello
from p4reduce_switch.datapath import Reason
from p4reduce_switch.fair_lock import FairLock
from p4reduce_switch.ports import PortError
from p4reduce_switch.ports.udp import AGGREGATION_PORT, EVICT_AFTER_S, EVICTION_RETRY_S, UdpUnderlay
from rigs.batch_of_python import PythonBatch
from rigs.limits import LIMIT_S
from rigs.router import router

MAC = bytes.fromhex("020000000001")
HELLO = pack_hello(1, 0xFEED)
LOOPBACK = ipaddress.IPv4Address("127.0.0.1").packed


class Sink:
    """A program that keeps frames and sends none."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, bytes]] = []

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        self.frames.append((port, frame))
        return []


class Bench:
    """An underlay on a free port, a clock that stands still, and peers on loopback."""

    def __init__(self, address: str = "127.0.0.1", *, has_parent: bool = False) -> None:
        self.now = 1000.0
        self.in_use: set[int] = set()
        self.peers: list[socket.socket] = []
        uplink = self.unknown_peer().getsockname() if has_parent else None
        self.underlay = UdpUnderlay((address, 0), uplink=uplink, clock=lambda: self.now, in_use=lambda: self.in_use)
        self.wake_reader, self.wake_writer = os.pipe()
        self.loop = self.underlay.datapath_loop(self.wake_reader)
        self.program = PythonBatch(Sink())

    def peer(self, address: str = "127.0.0.1") -> socket.socket:
        """A peer that has a port, as it said HELLO."""
        one = self.unknown_peer(address)
        assert self.receive(HELLO, peer=one)
        return one

    def unknown_peer(self, address: str = "127.0.0.1") -> socket.socket:
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.bind((address, 0))
        one.settimeout(LIMIT_S)
        self.peers.append(one)
        return one

    def receive(self, *payloads: bytes, peer: socket.socket) -> list[tuple[int, bytes]]:
        """Sends datagrams and drains them."""
        for payload in payloads:
            peer.sendto(payload, self.underlay.address)
        return self.drain()

    def drain(self) -> list[tuple[int, bytes]]:
        assert select.select(self.underlay._sockets, [], [], LIMIT_S)[0]
        frames, loop = self.program.program.frames, self.loop
        frames.clear()
        loop.buffers.bind(self.program, 0)
        os.write(self.wake_writer, b"x")
        while (reason := loop.run_once(FairLock().shared)) is not Reason.WOKEN:
            assert reason in (Reason.UNKNOWN_PEER, Reason.YIELD)
            loop.admit_pending()
        os.read(self.wake_reader, 1)
        for port in {port for port, _ in frames}:
            self.underlay._by_port[port].seen(self.now)  # the loop itself looks at the true clock
        return list(frames)

    def send(self, port: int, frame: bytes) -> bool:
        sent = self.underlay.send(port, frame)
        self.underlay.flush()
        return sent

    def close(self) -> None:
        self.underlay.close()
        os.close(self.wake_reader)
        os.close(self.wake_writer)
        for peer in self.peers:
            peer.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    one = Bench()
    yield one
    one.close()


@pytest.fixture
def leaf() -> Iterator[Bench]:
    """A switch with an uplink: the first of `peers` is its parent."""
    one = Bench(has_parent=True)
    yield one
    one.close()


@pytest.mark.fault("any addresses and lengths of a frame: its headers are those of scapy and of the program")
def test_the_headers_of_any_addresses_and_lengths_are_as_scapy_and_the_program_have_them() -> None:
    """The addresses and lengths whose IPv4 header checksum is 0 are among them: 1 of 65,535 is one by chance."""
    random = Random(7)
    program = router()
    frames = zeros = 0
    for _ in range(6):
        switch = ipaddress.IPv4Address(
            f"127.{random.randrange(256)}.{random.randrange(256)}.{random.randrange(1, 255)}"
        )
        bench = Bench(str(switch))
        try:
            for forced in (True, False) * 5:
                length = random.choice((0, 1, 2, 1001, random.randrange(64, 1472)))
                payload = (b"\xff" + random.randbytes(length))[:length]
                address = header_sum_zero(switch, 28 + len(payload), random) if forced else any_address(random)
                ((port, frame),) = bench.receive(payload, peer=bench.peer(str(address)))
                sender = bench.peers[-1].getsockname()
                ether = Ether(dst="02:00:00:00:00:01", src=b"\x06\0" + address.packed)
                expected = ether / IP(src=str(address), dst=str(switch), id=0, flags="DF")
                assert frame == bytes(expected / UDP(sport=sender[1], dport=AGGREGATION_PORT, chksum=0) / payload)
                assert program.process(port, frame), "its IPv4 header checksum is right"
                frames, zeros = frames + 1, zeros + (frame[24:26] == b"\0\0")
        finally:
            bench.close()
    assert zeros >= frames // 2 == 30


def any_address(random: Random) -> ipaddress.IPv4Address:
    """An address of the loopback interface."""
    return ipaddress.IPv4Address(
        bytes([127, random.randrange(256), random.randrange(1, 255), random.randrange(1, 255)])
    )


def header_sum_zero(switch: ipaddress.IPv4Address, total_bytes: int, random: Random) -> ipaddress.IPv4Address:
    """A peer's address with which the other fields of an IPv4 header add up to 0 modulo 65,535."""
    while True:
        high = any_address(random).packed[:2]
        fields = bytes.fromhex("4500") + total_bytes.to_bytes(2, "big") + bytes.fromhex("0000 4000 4011") + high
        low = -int.from_bytes(fields + switch.packed, "big") % 0xFFFF
        if low & 0xFF not in (0, 0xFF):  # not a network's or a broadcast address
            return ipaddress.IPv4Address(high + low.to_bytes(2, "big"))


def test_each_peer_keeps_its_port(bench: Bench) -> None:
    first, second = bench.peer(), bench.peer()
    assert [port for port, _ in bench.receive(b"a", peer=first)] == [1]
    assert [port for port, _ in bench.receive(b"b", peer=second)] == [2]
    bench.now += 100 * EVICT_AFTER_S
    assert [port for port, _ in bench.receive(b"c", peer=first)] == [1], "no peer is evicted without need"
    assert [(port, frame[42:]) for port, frame in bench.receive(b"d", b"e", peer=second)] == [(2, b"d"), (2, b"e")]
    assert bench.underlay.counters.datagrams_in == 5 + 2
    assert bench.underlay.counters.bytes_in == 5 + 2 * HELLO_BYTES


def back(frame: bytes) -> bytes:
    """The frame turned around, as a reply of the switch would be; checksums are not looked at on the way out."""
    ip = frame[14:26] + frame[30:34] + frame[26:30]
    return frame[6:12] + frame[:6] + frame[12:14] + ip + frame[36:38] + frame[34:36] + frame[38:]


def test_a_frame_to_the_peer_becomes_a_datagram(bench: Bench) -> None:
    peer = bench.peer()
    ((port, frame),) = bench.receive(b"payload", peer=peer)
    assert bench.send(port, back(frame) + b"ethernet padding")
    assert peer.recvfrom(2000) == (b"payload", bench.underlay.address)
    assert (bench.underlay.counters.datagrams_out, bench.underlay.counters.bytes_out) == (1, 7)


def test_frames_to_other_addresses_are_not_sent(bench: Bench) -> None:
    peer = bench.peer()
    ((port, frame),) = bench.receive(b"payload", peer=peer)
    good = back(frame)
    wrong = [
        b"",
        good[:14],
        good[:41],
        good[:-1],
        good[:12] + b"\x08\x06" + good[14:],
        good[:14] + b"\x46" + good[15:],
        good[:23] + b"\x06" + good[24:],
        good[:30] + b"\x7f\0\0\2" + good[34:],
        good[:36] + b"\0\1" + good[38:],
        good[:38] + b"\0\7" + good[40:],
    ]
    for one in wrong:
        assert bench.send(port, one)
    assert bench.underlay.counters.not_for_peer == len(wrong)
    assert bench.underlay.counters.datagrams_out == 0
    assert not bench.send(port + 1, good), "no peer has the port"


def test_a_hello_is_sent_to_the_peer_whatever_its_destination_is(bench: Bench) -> None:
    """A switch at the wrong end of an uplink then punts it, and the controller can name that switch."""
    peer = bench.peer()
    ((port, frame),) = bench.receive(HELLO, peer=peer)
    elsewhere = back(frame)[:36] + b"\0\1" + back(frame)[38:]
    assert bench.send(port, elsewhere)
    assert peer.recvfrom(2000)[0] == HELLO


def ports_of(bench: Bench, peer: socket.socket, payload: bytes = HELLO) -> list[int]:
    return [port for port, _ in bench.receive(payload, peer=peer)]


@pytest.mark.fault("junk datagrams at the switch's UDP port: take no port")
def test_a_datagram_other_than_hello_assigns_no_port(bench: Bench) -> None:
    unknown_peer = bench.unknown_peer()
    spoiled = [bytes([HELLO[0] ^ bit]) + HELLO[1:] for bit in (0x10, 0x01)]  # another version, another type
    others = [b"", b"x", HELLO[:-1], HELLO + b"x", *spoiled, bytes(HELLO_BYTES)]
    assert bench.receive(*others, peer=unknown_peer) == []
    assert bench.underlay.counters.no_hello == len(others)
    assert ports_of(bench, unknown_peer) == [1]
    assert ports_of(bench, unknown_peer, b"x") == [1], "what a peer says after HELLO is the program's affair"


def test_ports_of_inactive_peers_are_reassigned_when_none_is_free(bench: Bench) -> None:
    peers = [bench.unknown_peer() for _ in range(511)]
    for number, peer in enumerate(peers[:509], 1):
        bench.now += 0.001
        assert ports_of(bench, peer) == [number]
    assert ports_of(bench, peers[509]) == []
    assert bench.underlay.counters.no_free_port == 1
    bench.now += EVICT_AFTER_S - 1
    ports_of(bench, peers[0])
    bench.now += 1
    assert ports_of(bench, peers[509]) == [2], "the one silent for longest"
    assert bench.underlay.counters.evicted_ports == 1
    assert ports_of(bench, peers[1]) == [3], "who lost a port gets another"


@pytest.mark.fault("all UDP ports taken while a rank is silent: its port stays its own")
def test_a_port_with_entries_stays_assigned_to_an_inactive_peer(bench: Bench) -> None:
    bench.in_use = {2, 3}
    peers = [bench.unknown_peer() for _ in range(511)]
    for peer in peers[:509]:
        ports_of(bench, peer)
    bench.now += 1000.0
    for number, peer in enumerate(peers[3:509], 4):
        assert ports_of(bench, peer, b"alive") == [number]
    assert ports_of(bench, peers[509]) == [1], "the only one that is silent and not in use"
    bench.now += EVICTION_RETRY_S
    assert ports_of(bench, peers[510]) == []
    assert ports_of(bench, peers[1], b"alive") == [2]
    assert ports_of(bench, peers[2], b"alive") == [3]
    bench.in_use.remove(3)
    bench.now += EVICT_AFTER_S + 1
    for peer in (*peers[3:510], peers[1]):
        ports_of(bench, peer, b"alive")
    assert ports_of(bench, peers[510]) == [3], "its job has ended"


def test_a_flood_of_hellos_searches_for_ports_at_a_limited_rate(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[float] = []
    monkeypatch.setattr(bench.underlay, "_in_use", lambda: searches.append(bench.now) or ())
    for _ in range(509):
        bench.peer()
    unknown_peer = bench.unknown_peer()
    for _ in range(50):
        bench.now += EVICTION_RETRY_S / 10
        assert ports_of(bench, unknown_peer) == []
    assert bench.underlay.counters.no_free_port == 50
    assert len(searches) <= 6


def test_the_cpu_port_is_not_assigned_to_a_peer() -> None:
    underlay = UdpUnderlay(("127.0.0.1", 0), cpu_port=1)
    assert 1 not in underlay._numbers
    underlay.close()


@pytest.mark.parametrize("host", ["::1", "localhost", "0.0.0.0"])
def test_the_underlay_needs_one_ipv4_address(host: str) -> None:
    with pytest.raises(PortError):
        UdpUnderlay((host, 0))


def test_ports_assigned_evicted_and_refused_are_logged_at_a_limited_rate(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    bench.underlay._numbers = [1]
    bench.peer()
    unknown_peer = bench.unknown_peer()
    for _ in range(50):
        bench.receive(b"x", peer=unknown_peer)
    bench.now += EVICT_AFTER_S + 1
    bench.receive(HELLO, peer=unknown_peer)
    told = [(record.getMessage(), record.__dict__["p4reduce_fields"]) for record in caplog.records]
    assert [name for name, _ in told] == ["port given", "datagram refused", "port evicted"]
    assert told[2][1]["silent_s"] == EVICT_AFTER_S + 1
    assert str(0xFEED) not in caplog.text


def test_the_parent_is_at_the_uplink_port_without_a_hello(leaf: Bench) -> None:
    parent, child = leaf.peers[0], leaf.unknown_peer()
    ((port, frame),) = leaf.receive(b"from above", peer=parent)
    assert (port, frame[42:]) == (UPLINK_PORT, b"from above")
    assert leaf.underlay.counters.no_hello == 0
    assert ports_of(leaf, child) == [1], "the ports of other peers begin where they always do"
    assert leaf.send(UPLINK_PORT, back(frame))
    assert parent.recvfrom(2000) == (b"from above", leaf.underlay.address)


def test_frames_go_to_the_parent_before_any_came_from_it(leaf: Bench) -> None:
    """The controller's first HELLO is such a frame, by which the parent makes this switch a peer."""
    parent, source = leaf.peers[0].getsockname(), leaf.underlay.address
    frame = bytes(Ether() / IP(src=source[0], dst=parent[0]) / UDP(sport=AGGREGATION_PORT, dport=parent[1]) / HELLO)
    assert leaf.send(UPLINK_PORT, frame)
    assert leaf.peers[0].recvfrom(2000) == (HELLO, source)


def test_the_uplink_is_never_evicted(leaf: Bench) -> None:
    numbers = [number for number in range(1, 510) if number != UPLINK_PORT]
    peers = [leaf.unknown_peer() for _ in range(len(numbers) + 1)]
    for number, peer in zip(numbers, peers, strict=False):
        assert ports_of(leaf, peer) == [number]
    leaf.in_use = set(numbers)
    leaf.now += 1000 * EVICT_AFTER_S
    assert ports_of(leaf, peers[-1]) == [], "only the uplink is in no group"
    assert leaf.underlay.counters.evicted_ports == 0
    assert ports_of(leaf, leaf.peers[0], b"x") == [UPLINK_PORT]


@pytest.mark.parametrize(
    ("listen", "uplink", "cpu_port", "words"),
    [
        ("127.0.0.1:0", ("localhost", 5000), 510, "the IPv4 address and port of the parent switch, not 'localhost'"),
        ("127.0.0.1:0", ("0.0.0.0", 5000), 510, "needs the address that the parent switch listens on"),
        ("127.0.0.1:0", ("224.0.0.1", 5000), 510, "needs the address that the parent switch listens on"),
        ("127.0.0.1:0", ("127.0.0.1", 0), 510, "needs the address that the parent switch listens on"),
        ("127.0.0.1:0", ("127.0.0.1", 5000), UPLINK_PORT, "port 500 is the uplink's: choose another with --cpu-port"),
        ("127.9.8.7:5000", ("127.9.8.7", 5000), 510, "is this switch's own address: name the parent's"),
        ("127.0.0.1:0", ("127.0.0.1", AGGREGATION_PORT), 510, "so neither may use UDP port 21072.*--listen"),
        ("127.9.8.7:21072", ("127.9.8.7", 5000), 510, "so neither may use UDP port 21072.*--listen"),
    ],
)
def test_an_uplink_that_cannot_be_used_is_an_error(
    listen: str, uplink: tuple[str, int], cpu_port: int, words: str
) -> None:
    host, _, number = listen.rpartition(":")
    for _ in range(2):  # nothing is left bound
        with pytest.raises(PortError, match=words):
            UdpUnderlay((host, int(number)), uplink=uplink, cpu_port=cpu_port)


def test_a_parent_on_another_host_may_have_the_usual_udp_port() -> None:
    UdpUnderlay(("127.0.0.2", AGGREGATION_PORT), uplink=("127.0.0.3", AGGREGATION_PORT)).close()
