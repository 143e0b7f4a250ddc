"""Packet-in and packet-out over the stream."""

from __future__ import annotations

import pytest

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime.schema import FieldInfo
from p4reduce_switch.p4runtime.encoding import PacketHeader
from p4reduce_switch.switch import Switch
from rigs.limits import LIMIT_S
from rigs.p4rt import Raw, Served, config, entry, served

SAMPLE = (5).to_bytes(6, "big") + bytes(9)


def test_a_frame_to_the_cpu_port_becomes_a_packet_in(raw: Raw, switch: Served) -> None:
    punt = entry("exact_table", "", "punt", reason=b"\x63")
    punt.table_entry.is_default_action = True
    raw.write(("MODIFY", punt))
    switch.switch.receive(300, SAMPLE)
    packet = raw.next().packet
    assert packet.payload == SAMPLE
    assert [(m.metadata_id, m.value) for m in packet.metadata] == [(1, b"\x01\x2c"), (2, b"\x63")]


def test_packet_ins_without_a_primary_are_counted(switch: Served) -> None:
    switch.server._packet_in(b"frame")
    assert switch.server.packet_in_dropped == 1


def test_a_packet_out_without_a_cpu_port_is_refused_by_name() -> None:
    with served(Switch(cpu_port=None)) as switch, Raw(switch.address) as raw:
        raw.arbitrate()
        raw.set_config(config=config())
        raw.send(packet=p4r.PacketOut(payload=bytes(14)))
        assert "--cpu-port" in raw.next().error.message


def packet_out(*metadata: tuple[int, bytes]) -> p4r.PacketOut:
    packet = p4r.PacketOut(payload=SAMPLE)
    for id, value in metadata:
        packet.metadata.add(metadata_id=id, value=value)
    return packet


def test_a_packet_out_is_sent_from_its_egress_port(raw: Raw, switch: Served) -> None:
    raw.send(packet=packet_out((2, b"\x00"), (1, b"\x01\x02")))
    assert switch.ports.sent.get(timeout=LIMIT_S) == (258, SAMPLE)


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ([(1, b"\x01")], 3),
        ([(1, b"\x01"), (2, b"\x00"), (3, b"\x00")], 3),
        ([(1, b"\x01"), (1, b"\x01"), (2, b"\x00")], 3),
        ([(1, b"\x02\x00"), (2, b"\x00")], 11),
        ([(1, b""), (2, b"\x00")], 11),
    ],
    ids=["missing", "unknown", "twice", "too wide", "empty"],
)
def test_a_malformed_packet_out_is_dropped_and_reported(
    raw: Raw, switch: Served, metadata: list[tuple[int, bytes]], code: int
) -> None:
    bad = packet_out(*metadata)
    raw.send(packet=bad)
    error = raw.next().error
    assert error.canonical_code == code
    assert error.packet_out.packet_out == bad
    assert switch.ports.sent.empty()


def test_packet_in_headers_are_whole_bytes_and_short_frames_are_dropped() -> None:
    with pytest.raises(ValueError, match="9 bits"):
        PacketHeader([FieldInfo(1, "port", 9)])
    header = PacketHeader([FieldInfo(1, "port", 9), FieldInfo(2, "rest", 23)])
    assert header.packet_in(b"abc") is None
    packet = header.packet_in(b"\xff\x80\x00\x01payload")
    assert packet is not None
    assert header.frame(packet) == b"\xff\x80\x00\x01payload"
