"""Super-frames: what the kernel left undone is done, and runs that leave are cut up into the same frames."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import random
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether

from p4reduce_runtime import datagrams
from p4reduce_runtime.records import zeros
from p4reduce_switch.datapath import Reason
from p4reduce_switch.datapath.ethernet import Interface
from p4reduce_switch.fair_lock import FairLock
from p4reduce_switch.ports import Gso
from p4reduce_switch.ports.ethernet import EthernetLoop, EthernetPorts
from p4reduce_switch.switch import Switch
from rigs.batch_of_python import PythonBatch, Reflector
from rigs.limits import LIMIT_S
from rigs.router import router

MACS = bytes.fromhex("020000000001 060000000002")
HEADER = struct.Struct("<BBHHHH")
"""struct virtio_net_hdr"""
GSO_UDP_L4 = 5
PLAIN = bytes(HEADER.size)
"""The header of a complete frame."""
SWITCH_IP = "10.0.0.1"


def ones_complement(data: bytes) -> int:
    """The Internet checksum's sum: 0xffff where a checksum inside is right."""
    return int.from_bytes(data + b"\0" * (len(data) % 2), "big") % 0xFFFF or 0xFFFF


def datagram(
    payload: bytes, identification: int = 0, checksum: bool = True, flags: int = 0x4000, port: int = 7
) -> bytes:
    """A frame with a UDP datagram, all right."""
    ip = bytes([0x45, 0]) + (28 + len(payload)).to_bytes(2, "big") + identification.to_bytes(2, "big")
    ip += flags.to_bytes(2, "big") + bytes([64, 17])
    addresses = bytes([10, 0, 0, 1, 10, 0, 0, 2])
    ip += (0xFFFF - ones_complement(ip + addresses)).to_bytes(2, "big") + addresses
    udp = port.to_bytes(2, "big") + (21072).to_bytes(2, "big") + (8 + len(payload)).to_bytes(2, "big")
    pseudo = addresses + b"\0\x11" + udp[4:6]
    right = (0xFFFF - ones_complement(pseudo + udp + payload)) or 0xFFFF
    return MACS + b"\x08\0" + ip + udp + (right if checksum else 0).to_bytes(2, "big") + payload


def unfinished(payload: bytes, segment: int = 0, identification: int = 0) -> bytes:
    """A datagram, or a run of them, as the kernel hands it over: header first, half a checksum."""
    frame = datagram(payload, identification)
    half = ones_complement(frame[26:34] + b"\0\x11" + frame[38:40]) % 0xFFFF
    frame = frame[:40] + half.to_bytes(2, "big") + frame[42:]
    return HEADER.pack(1, GSO_UDP_L4 if segment else 0, 42, segment, 34, 6) + frame


def tcp_whose_checksum_is_zero() -> tuple[bytes, bytes]:
    """A TCP segment as the kernel hands it over, header first, and as it is on a wire: 0 has no meaning of its own."""
    segment = Ether(dst=MACS[:6], src=MACS[6:]) / IP(src="10.0.0.1", dst="10.0.0.2") / TCP() / bytes(40)
    missing = Ether(bytes(segment))[TCP].chksum
    frame = bytes(segment)[:-2] + missing.to_bytes(2, "big")
    half = ones_complement(frame[26:34] + b"\0\6" + (len(frame) - 34).to_bytes(2, "big"))
    return HEADER.pack(1, 0, 0, 0, 34, 16) + frame[:50] + half.to_bytes(2, "big") + frame[52:], (
        frame[:50] + b"\0\0" + frame[52:]
    )


def test_a_partial_checksum_is_completed(wire: Wire) -> None:
    payloads = (b"", b"x", b"even", bytes(1000), b"\xff" * 999)
    wire.turn(*map(unfinished, payloads), PLAIN + datagram(b"complete"))
    assert wire.program.program.seen == [datagram(payload) for payload in (*payloads, b"complete")]


def test_a_partial_tcp_checksum_is_completed_to_zero(wire: Wire) -> None:
    unfinished_segment, segment = tcp_whose_checksum_is_zero()
    assert Ether(segment)[TCP].chksum == 0
    wire.turn(unfinished_segment)
    assert wire.program.program.seen == [segment]


def test_super_frames_are_segmented(wire: Wire) -> None:
    seeded = random.Random(1)
    for length, segment, first in [(5017, 1000, 65534), *((seeded.randrange(200, 9000), 100, 0) for _ in range(20))]:
        payload = seeded.randbytes(length)
        wire.program.program.seen.clear()
        wire.turn(unfinished(payload, segment, first))
        pieces = [payload[at : at + segment] for at in range(0, length, segment)]
        expected = [datagram(piece, first + number & 0xFFFF) for number, piece in enumerate(pieces)]
        assert wire.program.program.seen == expected


def runs_with_zeros(seeded: random.Random) -> Iterator[tuple[bytes, list[bytes]]]:
    """Yield runs of three datagrams to the switch, header first, and the frames that scapy makes of them.

    One frame of each run has an IPv4 header checksum of 0, and another a UDP checksum of 0, which is written as 0xFFFF.
    """
    for _ in range(12):
        segment, source = seeded.randrange(64, 1400), seeded.getrandbits(32)
        one, other = seeded.sample(range(3), 2)
        sizes = [segment, segment, seeded.randrange(64, segment + 1)]
        ip = {"src": str(ipaddress.IPv4Address(source)), "dst": SWITCH_IP, "flags": "DF"}
        udp = UDP(sport=seeded.randrange(1, 65536), dport=21072)
        header = bytes(IP(**ip, id=0, len=28 + sizes[one], chksum=0, proto=17))
        first = -(int.from_bytes(header, "big") + one) % 0xFFFF
        pieces = [b"\xff" + seeded.randbytes(size - 1) for size in sizes]
        pieces[other] = pieces[other][:2] + b"\0\0" + pieces[other][4:]
        missing = UDP(bytes(IP(**ip) / udp / pieces[other])[20:]).chksum
        pieces[other] = pieces[other][:2] + missing.to_bytes(2, "big") + pieces[other][4:]
        ether = Ether(dst=MACS[:6], src=MACS[6:])
        expected = [
            bytes(ether / IP(**ip, id=first + number & 0xFFFF) / udp / piece) for number, piece in enumerate(pieces)
        ]
        assert expected[one][24:26] == b"\0\0"
        assert expected[other][40:42] == b"\xff\xff"
        whole = bytes(ether / IP(**ip, id=first) / udp / b"".join(pieces))
        yield HEADER.pack(1, GSO_UDP_L4, 42, segment, 34, 6) + whole, expected


@pytest.mark.fault(
    "an IPv4 header checksum of 0 in a run of datagrams that is cut up (GSO): written as 0, as the program expects"
)
def test_a_checksum_of_zero_is_written_as_scapy_and_the_program_have_it(wire: Wire) -> None:
    program = router()
    for run, expected in runs_with_zeros(random.Random(11)):
        wire.program.program.seen.clear()
        wire.turn(run)
        assert wire.program.program.seen == expected
        for frame in expected:
            assert program.process(1, frame), "its IPv4 header checksum is right"


def test_other_super_frames_are_not_segmented(wire: Wire) -> None:
    frame = unfinished(bytes(3000), 1000)
    others = (
        HEADER.pack(0, 1, 54, 1000, 34, 16) + frame[10:],
        HEADER.pack(0, GSO_UDP_L4, 42, 0, 34, 6) + frame[10:],
        HEADER.pack(0, GSO_UDP_L4, 62, 1000, 54, 6) + frame[10:],
        HEADER.pack(1, 0, 0, 0, 65000, 6) + frame[10:],
        HEADER.pack(0, GSO_UDP_L4, 42, 1000, 34, 6) + frame[10:22] + b"\x86\xdd\x60" + frame[25:],
        PLAIN,
        PLAIN + b"short",
    )
    wire.turn(*others)
    assert wire.program.program.seen == [other[10:] for other in others]


class Sent:
    """A program that keeps what it gets and sends what it was told to, out of port 5."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.answers: list[bytes] = []
        self.on_digest: Any = None
        self.action_profiles: dict[str, Any] = {}
        self.queues = None

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        assert port == 5
        self.seen.append(frame)
        answers, self.answers = self.answers, []
        return [(5, answer) for answer in answers]


class Wire:
    """The native loop on one end of a socket pair that takes the part of an interface."""

    def __init__(self, gso: Gso) -> None:
        self.near, self.far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.wake_reader, self.wake_writer = os.pipe()
        for end in (self.near, self.far):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
            end.setblocking(False)
        interfaces: Any = zeros(Interface)
        self.interface = interfaces[0]
        self.interface["descriptor"], self.interface["port"] = self.near.fileno(), 5
        self.interface["max_frame"], self.interface["gso_allowed"] = 1 << 17, gso
        self.loop = EthernetLoop(interfaces)
        self.loop.wake_by(self.wake_reader)
        self.program = PythonBatch(Sent(), max_bytes=1 << 19, copies=300)

    def turn(self, *received: bytes) -> list[bytes]:
        """Return the frames that the loop sends when it takes these, with headers."""
        os.write(self.wake_writer, b"x")
        for frame in received:
            self.far.send(frame)
        self.loop.buffers.bind(self.program, 0)
        while (reason := self.loop.run_once(FairLock().shared)) is not Reason.WOKEN:
            assert reason in (Reason.YIELD, Reason.BUFFER_FULL)
            if reason is Reason.BUFFER_FULL:
                self.loop.buffers.enlarge(self.program)
        os.read(self.wake_reader, 1)
        sent = []
        while select.select([self.far], [], [], 0)[0]:
            sent.append(self.far.recv(1 << 17))
        return sent

    def close(self) -> None:
        for descriptor in (self.wake_reader, self.wake_writer):
            os.close(descriptor)
        self.near.close()
        self.far.close()


@pytest.fixture(params=[Gso.ON])
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    one = Wire(request.param)
    yield one
    one.close()


def cuts(run: bytes) -> list[bytes]:
    """The frames of one that was sent, header first."""
    _, kind, _, segment, _, _ = HEADER.unpack_from(run)
    frame = run[HEADER.size :]
    if kind != GSO_UDP_L4:
        return [frame]
    return [with_payload(frame, frame[at : at + segment]) for at in range(42, len(frame), segment)]


def with_payload(frame: bytes, payload: bytes) -> bytes:
    """The datagram of a run that has this payload, with checksums by scapy."""
    one = Ether(frame[:42] + payload)
    for layer, fields in ((IP, ("len", "chksum")), (UDP, ("len", "chksum"))):
        for name in fields:
            delattr(one[layer], name)
    return bytes(one)


def neutral(frame: bytes) -> bytes:
    """A frame without identification, which means nothing when it is never fragmented, and what depends on it.

    A UDP checksum that is right counts as none.
    """
    if len(frame) < 42 or frame[12:15] != b"\x08\0\x45" or frame[23] != 17 or frame[20:22] != b"\x40\0":
        return frame
    pseudo = frame[26:34] + b"\0\x11" + frame[38:40]
    right = ones_complement(pseudo + frame[34:]) == 0xFFFF
    ip = (
        frame[14:18] + b"\0\0" + frame[20:24] + frame[26:34]
        if ones_complement(frame[14:34]) == 0xFFFF
        else frame[14:34]
    )
    return frame[:14] + ip + frame[34:40] + (b"\0\0" if right else frame[40:42]) + frame[42:]


def answers(seeded: random.Random) -> list[bytes]:
    """Frames that leave: most go the same way, and some are odd."""
    found: list[bytes] = []
    for _ in range(seeded.randint(1, 8)):
        length = seeded.choice([0, 1, 30, 1000, 1001])
        options = {"checksum": seeded.random() < 0.5, "port": seeded.choice([7, 7, 7, 8])}
        if seeded.random() < 0.1:
            options["flags"] = 0
        frames = [
            datagram(seeded.randbytes(length), seeded.getrandbits(16), **options)
            for _ in range(seeded.choice([1, 3, 70]))
        ]
        if seeded.random() < 0.3:
            spoilt = bytearray(seeded.choice(frames))
            spoilt[seeded.randrange(len(spoilt))] ^= 1 << seeded.randrange(8)
            frames.insert(seeded.randrange(len(frames)), bytes(spoilt))
        if seeded.random() < 0.2:
            frames.append(seeded.choice(frames) + b"padding")
        found += frames
    return found[:300]


def test_frames_sent_as_super_frames_are_segmented_to_the_same_frames(wire: Wire) -> None:
    seeded = random.Random(9)
    runs = 0
    for _ in range(25):
        leaving = wire.program.program.answers = answers(seeded)
        sent = wire.turn(PLAIN + b"go")
        assert [neutral(frame) for run in sent for frame in cuts(run)] == [neutral(frame) for frame in leaving]
        runs += sum(run[:10] != PLAIN for run in sent)
    assert runs > 40
    assert wire.interface["send_errors"] == 0


@pytest.mark.parametrize("wire", [Gso.OFF, Gso.AUTO], indirect=True)
def test_super_frames_are_sent_only_where_allowed(wire: Wire) -> None:
    leaving = [datagram(bytes(1000))] * 40

    def sent(*received: bytes) -> list[bytes]:
        wire.program.program.answers = list(leaving)
        return wire.turn(*received)

    assert sent(PLAIN + b"go", unfinished(b"no run, but of this machine")) == [PLAIN + leaving[0]] * 40
    after_a_run = sent(unfinished(bytes(3000), 1000))
    assert len(after_a_run) == (1 if wire.interface["gso_allowed"] else 40)
    assert wire.interface["frames_out"] == 80
    assert wire.interface["bytes_out"] == 80 * len(leaving[0])


def test_a_frame_longer_than_the_mtu_is_in_no_run(wire: Wire) -> None:
    wire.interface["max_frame"] = 1041
    wire.program.program.answers = [datagram(bytes(1000))] * 5
    assert len(wire.turn(PLAIN + b"go")) == 5


@pytest.mark.fault("a send buffer is full: the frame is counted, and repeated by its sender")
def test_a_frame_for_which_there_is_no_room_is_lost_and_counted_or_waits(wire: Wire) -> None:
    wire.near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
    while wire.interface["send_errors"] == 0:
        assert wire.loop.send([(5, bytes(1000))])
        assert wire.interface["frames_out"] < 1000
    wire.interface["waits"] = True
    assert not wire.loop.send([(5, bytes(1000))])
    assert wire.interface["send_errors"] == 1
    wire.loop.watch_for_room(5, True)
    while select.select([wire.far], [], [], 0)[0]:
        assert wire.far.recv(2000) == PLAIN + bytes(1000)
    assert wire.loop.run_once(FairLock().shared) is Reason.WOKEN, "there is room"
    assert wire.loop.send([(5, b"frame")])


@contextlib.contextmanager
def reflecting(pair: tuple[str, str]) -> Iterator[tuple[EthernetPorts, socket.socket]]:
    """A switch in the native loop that sends everything back, on a veth link, and the far end with headers."""
    switch, ports = Switch(), EthernetPorts({1: pair[0]})
    switch.add_ports(ports)
    switch.install(PythonBatch(Reflector()))  # type: ignore[arg-type]
    thread = threading.Thread(target=switch.run)
    thread.start()
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as far:
        far.setsockopt(263, 15, 1)
        datagrams.enlarge_buffers(far, 8 << 20)
        far.bind((pair[1], 0x0003))
        yield ports, far
    switch.stop()
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    switch.close()


def swapped(frame: bytes) -> bytes:
    return (
        frame[6:12] + frame[:6] + frame[12:26] + frame[30:34] + frame[26:30] + frame[36:38] + frame[34:36] + frame[38:]
    )


def returned(far: socket.socket, count: int) -> tuple[list[bytes], list[int]]:
    """Return that many frames of the test's own that came back, and how many came at once."""
    frames: list[bytes] = []
    together = []
    deadline = time.monotonic() + LIMIT_S
    while len(frames) < count:
        assert select.select([far], [], [], max(deadline - time.monotonic(), 0))[0]
        received, address = far.recvfrom(70000)
        if address[2] == socket.PACKET_OUTGOING or received[10:22] != MACS[6:] + MACS[:6]:
            continue
        cut = cuts(received)
        frames += cut
        together.append(len(cut))
    return frames, together


def check_super_frames_pass_in_both_directions(ports: EthernetPorts, far: socket.socket) -> None:
    payload = random.Random(3).randbytes(1000 * 40 + 5)
    run = unfinished(payload, 1000)
    sent = cuts(run)
    far.send(PLAIN + sent[0])
    assert [neutral(frame) for frame in returned(far, 1)[0]] == [neutral(swapped(sent[0]))]
    for _ in range(3):
        far.send(run)
        frames, together = returned(far, 41)
        assert [neutral(frame) for frame in frames] == [neutral(swapped(frame)) for frame in sent]
        assert together == [41]
    far.send(unfinished(b"half a checksum, as from a socket of this machine" * 2))
    assert returned(far, 1)[0][0][42:] == b"half a checksum, as from a socket of this machine" * 2
    deadline = time.monotonic() + LIMIT_S
    while (counters := ports.counters[1]).frames_out < 2 + 3 * 41:  # a frame is counted after it has left
        assert time.monotonic() < deadline, counters
    assert counters.frames_in >= counters.frames_out
    assert counters.send_errors == 0


def check_a_frame_over_the_mtu_is_lost_and_counted(ports: EthernetPorts, far: socket.socket) -> None:
    before = ports.counters[1].send_errors
    far.send(unfinished(bytes(9000), 3000))
    far.send(PLAIN + datagram(b"and this one comes back, as it is short enough"))
    returned(far, 1)
    assert ports.counters[1].send_errors == before + 3


def check_frames_pass_in_both_directions_and_are_not_reflected(pair: tuple[str, str]) -> None:
    near, far = EthernetPorts({7: pair[0]}), EthernetPorts({9: pair[1]})
    try:
        frame = bytes.fromhex("020000000099 020000000001 88b5") + b"a frame to another one" * 50
        assert near.send(7, frame)
        near.flush()
        assert not near.send(8, frame)
        assert _frames(far) == [(9, frame)]
        assert far.send(9, frame[::-1])
        far.flush()
        assert _frames(near) == [(7, frame[::-1])], "and not its own frame as well"
        counters = near.counters[7]
        assert (counters.frames_out, counters.bytes_out) == (1, len(frame))
        assert (counters.frames_in, counters.bytes_in) == (1, len(frame))
        near.send(7, bytes(70_000))
        near.flush()
        assert near.counters[7].send_errors == 1
    finally:
        near.close()
        far.close()


def _frames(ports: EthernetPorts) -> list[tuple[int, bytes]]:
    """The test's frames that arrive first; what the kernel itself sends is left out."""
    found: list[tuple[int, bytes]] = []
    reader, writer = os.pipe()
    loop = ports.datapath_loop(reader)
    deadline = time.monotonic() + LIMIT_S
    while not found:
        assert time.monotonic() < deadline
        reason = loop.run_once(FairLock().shared)
        assert reason in (Reason.FRAMES, Reason.YIELD)
        found += [(port, frame) for port, frame in loop.buffers.frames() if len(frame) > 1000]
    os.close(reader)
    os.close(writer)
    return found


@pytest.mark.root
def test_frames_and_super_frames_pass_a_link(pair: tuple[str, str]) -> None:
    check_frames_pass_in_both_directions_and_are_not_reflected(pair)
    with reflecting(pair) as (ports, far):
        check_super_frames_pass_in_both_directions(ports, far)
        check_a_frame_over_the_mtu_is_lost_and_counted(ports, far)
