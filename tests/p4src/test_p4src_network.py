"""Everything that is not aggregation: L2 switching, learning, flooding, ARP, ping, packet-in, packet-out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.l2 import ARP, Ether

from p4reduce_switch.program.state.stateful import MeterConfig
from rigs import wire
from rigs.pipeline import CPU_PORT, SWITCH_IP, SWITCH_MAC, PipelineRig, ipv4_header, rank_port, udp_frame
from rigs.tna import NO_PORT
from rigs.tna_rig import TnaRig
from rigs.tofino_model import TARGETS, ModelRig

HOST_MAC, OTHER_MAC, SWITCH_MAC_TEXT = "02:00:00:00:aa:01", "02:00:00:00:aa:02", "02:00:00:00:00:01"


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def any_rig(rig_of: Callable[..., PipelineRig]) -> PipelineRig:
    rig = rig_of(2)
    rig.flood_to((1, 2, 3))
    return rig


@pytest.fixture
def rig() -> PipelineRig:
    made = PipelineRig("small", 2)
    made.flood_to((1, 2, 3))
    return made


def known(rig: PipelineRig, mac: int, port: int) -> None:
    rig.insert("forwarding.mac_table", (mac,), "forward", (port,))


FOREIGN = {
    "tcp": Ether(src=HOST_MAC, dst=OTHER_MAC) / IP(src="10.9.0.1", dst="10.9.0.2") / TCP() / b"data",
    "udp": Ether(src=HOST_MAC, dst=OTHER_MAC) / IP(src="10.9.0.1", dst="10.9.0.2") / UDP(dport=53) / b"data",
    "ping": Ether(src=HOST_MAC, dst=OTHER_MAC) / IP(src="10.9.0.1", dst="10.9.0.2") / ICMP() / b"data",
    "arp": Ether(src=HOST_MAC, dst=OTHER_MAC) / ARP(psrc="10.9.0.1", pdst="10.9.0.2"),
    "no IP": Ether(src=HOST_MAC, dst=OTHER_MAC, type=0x88B5) / b"anything",
    "bad IPv4 checksum": Ether(src=HOST_MAC, dst=OTHER_MAC) / IP(dst="10.9.0.2", chksum=1) / UDP() / b"x",
    "truncated IPv4": Ether(src=HOST_MAC, dst=OTHER_MAC, type=0x0800) / b"\x45\x00",
    "IPv4 options": Ether(src=HOST_MAC, dst=OTHER_MAC) / IP(dst="10.9.0.2", options=b"\x01" * 4) / UDP() / b"x",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_frames_are_forwarded_unchanged(any_rig: PipelineRig, name: str) -> None:
    frame = bytes(FOREIGN[name])
    known(any_rig, 0x02000000AA02, 3)
    assert any_rig.process(1, frame) == [(3, frame)]
    assert any_rig.drops() == {}


def test_aggregation_frames_for_another_switch_pass_unchanged(any_rig: PipelineRig) -> None:
    known(any_rig, SWITCH_MAC, 3)
    full = any_rig.contribution(blocks={0: bytes(range(32)), 2: bytes(32)})
    for payload in (full, full[:-5], full + b"tail", wire.pack_hello(7, 1), b"\x55", b""):
        frame = udp_frame(0, payload, dst_ip=SWITCH_IP + 1)
        [(port, found)] = any_rig.process(1, frame)
        # a chip extracts whole containers: a block that ends within one leaves with bytes of the FCS
        more = 3 if isinstance(any_rig, ModelRig) and payload == full[:-5] else 0
        assert port == 3 and found.startswith(frame) and len(found) <= len(frame) + more
    assert any_rig.drops() == {}


def test_unknown_destination_is_flooded_but_not_back(any_rig: PipelineRig) -> None:
    frame = bytes(FOREIGN["udp"])
    assert any_rig.process(2, frame) == [(1, frame), (3, frame)]


def test_a_destination_on_the_same_port_is_filtered(any_rig: PipelineRig) -> None:
    known(any_rig, 0x02000000AA02, 2)
    assert any_rig.process(2, bytes(FOREIGN["udp"])) == []


def test_arp_for_the_switch_is_answered(any_rig: PipelineRig) -> None:
    request = Ether(src=HOST_MAC, dst="ff:ff:ff:ff:ff:ff") / ARP(hwsrc=HOST_MAC, psrc="10.0.0.9", pdst="10.0.0.1")
    [(port, frame)] = any_rig.process(2, bytes(request))
    reply = Ether(frame)
    assert port == 2
    assert (reply.dst, reply.src) == (HOST_MAC, SWITCH_MAC_TEXT)
    assert (reply[ARP].op, reply[ARP].hwsrc, reply[ARP].psrc) == (2, SWITCH_MAC_TEXT, "10.0.0.1")
    assert (reply[ARP].hwdst, reply[ARP].pdst) == (HOST_MAC, "10.0.0.9")


@pytest.mark.parametrize("data", [b"", b"odd", bytes(range(200)), b"\xff" * 56])
def test_ping_is_answered_with_right_checksums(any_rig: PipelineRig, data: bytes) -> None:
    echo = (
        Ether(src=HOST_MAC, dst=SWITCH_MAC_TEXT) / IP(src="10.0.0.9", dst="10.0.0.1", ttl=3) / ICMP(id=5, seq=6) / data
    )
    [(port, frame)] = any_rig.process(2, bytes(echo))
    expected = (
        Ether(src=SWITCH_MAC_TEXT, dst=HOST_MAC)
        / IP(src="10.0.0.1", dst="10.0.0.9", ttl=64, id=echo[IP].id)
        / ICMP(type=0, id=5, seq=6)
        / data
    )
    assert port == 2
    assert frame == bytes(expected)


def test_the_controller_s_port_of_tofino() -> None:
    rig = TnaRig("tofino1-4x8", 2)
    hello = udp_frame(1, wire.pack_hello(7, 0x1122334455667788))
    assert rig.process(rank_port(1), hello) == [(TOFINO_CPU_PORT, rank_port(1).to_bytes(2, "big") + hello)]
    assert rig.process(TOFINO_CPU_PORT, (3).to_bytes(2, "big") + hello) == [(3, hello)]
    assert rig.process(TOFINO_CPU_PORT, NO_PORT.to_bytes(2, "big") + hello) == []
    rig.tna.colors[rank_port(1)] = METER_RED
    assert rig.process(rank_port(1), hello) == []
    assert rig.drops() == {"RATE": 1}


def test_spoofed_frames_are_dropped_and_addresses_learned_on_tofino() -> None:
    rig = TnaRig("tofino1-4x8", 2)
    for frame in IMPOSTORS.values():
        assert rig.process(2, bytes(frame)) == []
    assert rig.drops() == {"SPOOFED": len(IMPOSTORS)}
    assert rig.tna.digests == []
    rig.process(2, bytes(FOREIGN["udp"]))
    assert rig.tna.digests == [[(0x02000000AA01, 48), (2, 9)]]
    rig.insert("forwarding.learned", (0x02000000AA01, 2), "known", ())
    rig.process(2, bytes(FOREIGN["udp"]))
    assert len(rig.tna.digests) == 1
    assert rig.process(2, b"\x02" * 9) == []  # a runt, also with its FCS
    assert len(rig.tna.digests) == 1


TOFINO_CPU_PORT, METER_RED = 192, 3
SWITCH_IP_TEXT = "10.0.0.1"
IMPOSTORS = {
    "a RESULT for a worker": Ether(src=HOST_MAC, dst=OTHER_MAC)
    / IP(src=SWITCH_IP_TEXT, dst="10.0.1.0")
    / UDP(sport=wire.AGGREGATION_PORT, dport=40000)
    / b"RESULT",
    "UDP from another port": Ether(src=HOST_MAC, dst=OTHER_MAC)
    / IP(src=SWITCH_IP_TEXT, dst="10.0.1.0")
    / UDP(sport=5, dport=6)
    / b"anything",
    "TCP": Ether(src=HOST_MAC, dst=OTHER_MAC) / IP(src=SWITCH_IP_TEXT, dst="10.0.1.0") / TCP() / b"data",
    "its MAC address": Ether(src=SWITCH_MAC_TEXT, dst=OTHER_MAC) / IP(src="10.9.0.1", dst="10.9.0.2") / UDP() / b"x",
    "its MAC address, no IP": Ether(src=SWITCH_MAC_TEXT, dst=OTHER_MAC, type=0x88B5) / b"anything",
    "an ARP reply for its IP address": Ether(src=HOST_MAC, dst=OTHER_MAC)
    / ARP(op=2, hwsrc=HOST_MAC, psrc=SWITCH_IP_TEXT, hwdst=OTHER_MAC, pdst="10.0.1.0"),
    "gratuitous ARP": Ether(src=HOST_MAC, dst="ff:ff:ff:ff:ff:ff")
    / ARP(hwsrc=HOST_MAC, psrc=SWITCH_IP_TEXT, pdst=SWITCH_IP_TEXT),
    "a ping of the switch": Ether(src=HOST_MAC, dst=SWITCH_MAC_TEXT)
    / IP(src=SWITCH_IP_TEXT, dst=SWITCH_IP_TEXT)
    / ICMP()
    / b"ping",
}


@pytest.mark.fault("a frame that claims to be the switch's: SPOOFED, not forwarded")
@pytest.mark.parametrize("name", IMPOSTORS)
def test_frames_with_the_switch_s_address_as_source_are_dropped(rig: PipelineRig, name: str) -> None:
    """Neither forwarded nor flooded nor answered, and the address is not learned."""
    digests: list[object] = []
    rig.program.on_digest = lambda name, values: digests.append(values)
    known(rig, 0x02000000AA02, 3)
    assert rig.program.process(2, bytes(IMPOSTORS[name])) == []
    assert rig.drops() == {"SPOOFED": 1}
    assert digests == []


def test_a_worker_may_share_the_switch_s_ip_address(rig: PipelineRig) -> None:
    """On the switch's own machine, as over the UDP underlay: its HELLO and its frames have another UDP port."""
    hello = udp_frame(0, wire.pack_hello(7, 5))
    shared = hello[:14] + ipv4_header(SWITCH_IP, SWITCH_IP, len(hello) - 34) + hello[34:]
    assert [port for port, _ in rig.program.process(1, shared)] == [CPU_PORT]
    assert rig.drops() == {}


@pytest.mark.fault("a flood of HELLOs: dropped beyond a port's rate")
def test_hellos_beyond_a_port_s_rate_are_dropped(rig: PipelineRig) -> None:
    """The meter is indexed by ingress port; a port without rates is not limited."""
    meter = rig.program.meters["MainIngress.punt.hello_rate"]
    now_us = [0]
    meter.clock = lambda: now_us[0]
    meter.configure(rank_port(0), MeterConfig(cir=10, cburst=3, pir=10, pburst=3))
    hello = udp_frame(0, wire.pack_hello(7, 5))
    assert [len(rig.program.process(rank_port(0), hello)) for _ in range(5)] == [1, 1, 1, 0, 0]
    assert rig.drops() == {"RATE": 2}
    other = udp_frame(1, wire.pack_hello(7, 6))
    assert all(len(rig.program.process(rank_port(1), other)) == 1 for _ in range(20))
    now_us[0] += 100_000  # a tenth of a second: one more
    assert [len(rig.program.process(rank_port(0), hello)) for _ in range(2)] == [1, 0]
