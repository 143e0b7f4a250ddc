"""Packet-in and packet-out: the header the program sees on the CPU port <-> metadata by id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from p4reduce_contracts.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_contracts.p4runtime.schema import FieldInfo
from p4reduce_switch.p4runtime.bits import data_of, value_of
from p4reduce_switch.p4runtime.status import invalid


class PacketHeader:
    """A controller header: its fields one after the other, whole bytes in all."""

    def __init__(self, fields: Sequence[FieldInfo]) -> None:
        self.fields = tuple(fields)
        bits = sum(field.bitwidth for field in fields)
        if bits % 8:
            raise ValueError(f"a controller header has {bits} bits, which are not whole bytes")
        self.length_bytes = bits // 8

    @classmethod
    def of(cls, fields: Sequence[FieldInfo]) -> PacketHeader | None:
        """None when the program has no such header."""
        return cls(fields) if fields else None

    def packet_in(self, frame: bytes) -> Any | None:
        """The PacketIn of a frame sent to the CPU port; None when it is shorter than the header."""
        if len(frame) < self.length_bytes:
            return None
        packet = p4r.PacketIn(payload=frame[self.length_bytes :])
        bits = int.from_bytes(frame[: self.length_bytes], "big")
        left = self.length_bytes * 8
        for field in self.fields:
            left -= field.bitwidth
            value = bits >> left & (1 << field.bitwidth) - 1
            packet.metadata.add(metadata_id=field.id, value=data_of(value, field))
        return packet

    def frame(self, packet: Any) -> bytes:
        """The frame to inject for a PacketOut; INVALID_ARGUMENT unless it has each field once and nothing else."""
        given = {item.metadata_id: item.value for item in packet.metadata}
        known = {field.id for field in self.fields}
        if len(given) != len(packet.metadata) or not set(given) <= known:
            invalid(f"packet-out metadata has unknown or repeated ids {sorted(m.metadata_id for m in packet.metadata)}")
        bits = 0
        for field in self.fields:
            if field.id not in given:
                invalid(f"packet-out metadata {field.name} (id {field.id}) is missing")
            bits = bits << field.bitwidth | value_of(given[field.id], field)
        return bits.to_bytes(self.length_bytes, "big") + bytes(packet.payload)
