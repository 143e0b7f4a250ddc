"""The network of the p4reduce cases: who is where, what the controller writes, and frames of every kind."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from conformance.case import ARTIFACTS, Arrive, Case, Step
from p4reduce_contracts.wire.checksum import internet_checksum
from p4reduce_controller.registry.job import Grant
from p4reduce_controller.switches.entries import v1model
from p4reduce_controller.switches.program_names import FLOOD_GROUP, V1MODEL
from p4reduce_runtime.p4runtime.entries import DigestConfig, Entry, MulticastGroup, TableEntry
from rigs import wire
from rigs.pipeline import (
    EPOCH,
    JOB,
    PARENT,
    SLOT_BASE,
    SLOT_COUNT,
    SWITCH_IP,
    SWITCH_MAC,
    UPLINK_PORT,
    frame_with,
    from_host,
    grant_of,
    ipv4_header,
    rank_host,
    rank_ip,
    rank_mac,
    switch_config,
    udp_frame,
)
from rigs.secret import rank_secret

GEOMETRIES = {"small": wire.SMALL, "default": wire.DEFAULT, "jumbo": wire.JUMBO}
OTHER_IP, OTHER_MAC = 0x0A0000FE, 0x0200000000FE
BROADCAST = 0xFFFFFFFFFFFF
ETHERNET_BYTES = 14


@dataclass(frozen=True)
class Network:
    """A job of `world_size` ranks; rank r is at port 1 + r, or two ranks a port with `shared_ports`.

    As a `leaf` the switch has a parent at UPLINK_PORT.
    """

    geometry_name: str
    world_size: int
    shared_ports: bool = False
    leaf: bool = False

    @property
    def geometry(self) -> wire.Geometry:
        return GEOMETRIES[self.geometry_name]

    @property
    def least_blocks(self) -> int:
        """Blocks a contribution must carry so that even a RESULT with all columns has room in BMv2's buffer."""
        return max(0, self.geometry.columns - wire.MAX_GROWTH_BYTES // self.geometry.block_bytes)

    def port(self, rank: int) -> int:
        return 1 + (rank // 2 if self.shared_ports else rank)

    def case(self, name: str, steps: list[Step]) -> Case:
        folder = ARTIFACTS / self.geometry_name
        return Case(name, folder / "p4reduce.json", folder / "p4reduce.p4info.txtpb", tuple(steps))

    def switching(self) -> list[Entry]:
        """Return the entries of a switch: its address, the flood group, learned MACs of rank 0 and 1."""
        ports = sorted({self.port(rank) for rank in range(self.world_size)} | {40})
        entries: list[Entry] = [
            *v1model.switch_address(switch_config(), V1MODEL),
            MulticastGroup(FLOOD_GROUP, tuple((port, port) for port in ports)),
            DigestConfig(V1MODEL.mac_learn),
        ]
        for rank in (0, 1):
            mac, port = rank_mac(rank), self.port(rank)
            entries.append(TableEntry(V1MODEL.mac_table, {"dst_mac": mac}, V1MODEL.forward, {"port": port}))
            entries.append(TableEntry(V1MODEL.learned, {"src_mac": mac, "ingress_port": port}, V1MODEL.known))
        return entries

    def _grant(self, epoch: int = EPOCH, slot_base: int = SLOT_BASE) -> Grant:
        ranks = [rank_host(rank, rank_secret(rank)) for rank in range(self.world_size)]
        return grant_of(ranks, PARENT if self.leaf else None, epoch, slot_base, port_of=self.port)

    def job(self) -> list[Entry]:
        grant = self._grant()
        members = v1model.members(grant, switch_config(), V1MODEL)
        group, *up = v1model.groups(grant)
        ranks, parent = members[: self.world_size], members[self.world_size :]
        return [group, *ranks, *up, *parent, *v1model.admission(grant, V1MODEL)[self.world_size :]]

    def parent_admission(self, epoch: int = EPOCH) -> TableEntry:
        return v1model.admission(self._grant(epoch), V1MODEL)[self.world_size]

    def admission(self, rank: int, epoch: int = EPOCH, slot_base: int = SLOT_BASE) -> TableEntry:
        return v1model.admission(self._grant(epoch, slot_base), V1MODEL)[rank]

    def contribution(
        self, rank: int, slot: int, round_: int, keys: tuple[int, ...], blocks: dict[int, bytes], epoch: int = EPOCH
    ) -> Arrive:
        """A well-formed CONTRIBUTE; `blocks` are bytes by column."""
        numbers = {"slot": slot, "round": round_ & 0xFFFFFFFF, "epoch": epoch, "secret": rank_secret(rank)}
        frame = frame_with(self.geometry, blocks, keys=keys, **numbers)
        return Arrive(self.port(rank), udp_frame(rank, wire.pack(self.geometry, frame)))

    def answer(self, kind: int, slot: int, round_: int, blocks: dict[int, bytes], **fields: int) -> Arrive:
        keys = tuple(wire.key_of(column, 100) for column in range(self.geometry.columns))
        numbers = {"slot": slot, "round": round_, "seen": 0b101, "secret": PARENT.secret}
        frame = frame_with(self.geometry, blocks, kind, keys, **{**numbers, **fields})
        return Arrive(UPLINK_PORT, from_host(PARENT, wire.pack(self.geometry, frame)))


# ---- frames with a fault

Mutation = Callable[[random.Random, bytes], bytes]
BASE = 42  # of the aggregation header in a frame
GUARD = BASE + wire.BASE_BYTES
KEYS = GUARD + wire.GUARD_BYTES


def reseal(offset: int, *data: int) -> Mutation:
    """Other bytes in a contribution's base header, by someone who makes the header checksum right again."""

    def change(_: random.Random, frame: bytes) -> bytes:
        changed = frame[:offset] + bytes(data) + frame[offset + len(data) :]
        geometry = next((shape for shape in GEOMETRIES.values() if len(frame) - BASE in shape.lengths), None)
        if geometry is None:  # another frame than a contribution (no length is of both geometries)
            return changed
        checksum = wire.header_checksum(geometry, changed[BASE:]).to_bytes(2, "big")
        return changed[: GUARD + 12] + checksum + changed[GUARD + 14 :]

    return change


def flip_in(first: int, end: int | None = None) -> Mutation:
    """One bit of these bytes, or of all from the first one on."""

    def change(source: random.Random, frame: bytes) -> bytes:
        place = source.randrange(first, end or len(frame))
        return frame[:place] + bytes((frame[place] ^ 1 << source.randrange(8),)) + frame[place + 1 :]

    return change


def overwrite(offset: int, *data: int) -> Mutation:
    """Other bytes at a place; a place in the IPv4 header keeps its checksum right."""

    def change(_: random.Random, frame: bytes) -> bytes:
        changed = frame[:offset] + bytes(data) + frame[offset + len(data) :]
        return fix_checksum(changed) if 14 <= offset < 34 else changed

    return change


def fix_checksum(frame: bytes) -> bytes:
    header = frame[14:24] + b"\0\0" + frame[26:34]
    return frame[:24] + internet_checksum(header).to_bytes(2, "big") + frame[26:]


def cut(source: random.Random, frame: bytes) -> bytes:
    return frame[: ETHERNET_BYTES + source.randrange(len(frame) - ETHERNET_BYTES)]


def pad(source: random.Random, frame: bytes) -> bytes:
    return frame + bytes(1 + source.randrange(8))


def with_options(_: random.Random, frame: bytes) -> bytes:
    header = b"\x46" + frame[15:16] + (int.from_bytes(frame[16:18], "big") + 4).to_bytes(2, "big") + frame[18:34]
    return frame[:14] + header + b"\1\1\1\1" + frame[34:]


FAULTS: dict[str, Mutation] = {
    "cut": cut,
    "padded": pad,
    "flipped bit": flip_in(0),
    "ip options": with_options,
    "udp length": overwrite(38, 0, 9),
    "ip length": overwrite(16, 0, 60),
    "ip checksum": lambda _, frame: frame[:24] + bytes((frame[24] ^ 0x5A,)) + frame[25:],
    "more fragments": overwrite(20, 0x20, 0),
    "later fragment": overwrite(20, 0, 5),
    "ip version": overwrite(14, 0x65),
    "short ihl": overwrite(14, 0x44),
    "tcp": overwrite(23, 6),
    "wire version": overwrite(BASE, 0x11),
    "wire version 0": overwrite(BASE, 0x01),
    "type 0": overwrite(BASE, 0x20),
    "RESULT": reseal(BASE, 0x22),
    "PENDING": reseal(BASE, 0x23),
    "HELLO of the wrong size": overwrite(BASE, 0x24),
    "type 15": overwrite(BASE, 0x2F),
    "job": reseal(BASE + 1, JOB + 1),
    "all columns": overwrite(BASE + 2, 0xFF),
    "no columns": overwrite(BASE + 2, 0),
    "level": reseal(BASE + 3, 1),
    "epoch 0": reseal(BASE + 4, 0, 0),
    "epoch": reseal(BASE + 4, 0, EPOCH - 1),
    "slot after the last": reseal(BASE + 6, 0, SLOT_COUNT),
    "slot": reseal(BASE + 6, 0xFF, 0xFF),
    "seen": reseal(BASE + 12, 0, 0, 0, 1),
    "round": reseal(BASE + 8, 0x40),
    "header bit": flip_in(BASE, GUARD),
    "secret": flip_in(GUARD, GUARD + 8),
    "check word": flip_in(GUARD + 8, GUARD + 12),
    "header checksum": flip_in(GUARD + 12, GUARD + 14),
    "guard's reserved field": flip_in(GUARD + 14, GUARD + 16),
    "key": flip_in(KEYS, KEYS + 16),
    "switch's IP address": lambda _, frame: fix_checksum(frame[:26] + SWITCH_IP.to_bytes(4, "big") + frame[30:]),
    "switch's IP address and UDP port": lambda _, frame: fix_checksum(
        frame[:26] + SWITCH_IP.to_bytes(4, "big") + frame[30:34] + wire.AGGREGATION_PORT.to_bytes(2, "big") + frame[36:]
    ),
    "switch's MAC address": lambda _, frame: frame[:6] + SWITCH_MAC.to_bytes(6, "big") + frame[12:],
    "udp source": overwrite(34, 0x9C, 0x00),
    "udp destination": overwrite(36, 0x52, 0x51),
    "ip source": overwrite(26, 10, 9, 9, 9),
    "ip destination": overwrite(30, 10, 0, 0, 99),
    "vlan tag": lambda _, frame: frame[:12] + b"\x81\0\0\5" + frame[12:],
}


# ---- ordinary traffic

Ordinary = Callable[[random.Random, int], bytes]
"""(source of randomness, rank that sends) -> frame."""


def ethernet(dst: int, rank: int, ethertype: int, payload: bytes) -> bytes:
    return dst.to_bytes(6, "big") + rank_mac(rank).to_bytes(6, "big") + ethertype.to_bytes(2, "big") + payload


def arp(rank: int, target_ip: int, operation: int = 1, dst: int = BROADCAST, sender_ip: int | None = None) -> bytes:
    head = b"\0\1\x08\0\6\4" + operation.to_bytes(2, "big")
    sender = rank_ip(rank) if sender_ip is None else sender_ip
    addresses = rank_mac(rank).to_bytes(6, "big") + sender.to_bytes(4, "big")
    return ethernet(dst, rank, 0x0806, head + addresses + bytes(6) + target_ip.to_bytes(4, "big"))


def ping(rank: int, dst_ip: int, dst_mac: int, payload: bytes, kind: int = 8, good: bool = True) -> bytes:
    body = bytes((kind, 0)) + b"\0\0" + b"\x12\x34\0\1" + payload
    sum_ = internet_checksum(body)
    icmp = body[:2] + (sum_ if good else sum_ ^ 1).to_bytes(2, "big") + body[4:]
    return ethernet(dst_mac, rank, 0x0800, ipv4_header(rank_ip(rank), dst_ip, len(icmp), protocol=1) + icmp)


def transit(rank: int, dst_mac: int, dst_ip: int, protocol: int, payload: bytes) -> bytes:
    return ethernet(dst_mac, rank, 0x0800, ipv4_header(rank_ip(rank), dst_ip, len(payload), protocol) + payload)


ORDINARY: dict[str, Ordinary] = {
    "arp for the switch": lambda _, rank: arp(rank, SWITCH_IP),
    "arp for another": lambda _, rank: arp(rank, OTHER_IP),
    "arp reply to the switch": lambda _, rank: arp(rank, SWITCH_IP, 2, SWITCH_MAC),
    "arp in the switch's name": lambda _, rank: arp(rank, OTHER_IP, 2, OTHER_MAC, SWITCH_IP),
    "ping": lambda source, rank: ping(rank, SWITCH_IP, SWITCH_MAC, source.randbytes(source.randrange(64))),
    "ping of another": lambda source, rank: ping(rank, OTHER_IP, OTHER_MAC, source.randbytes(8)),
    "wrong ping": lambda source, rank: ping(rank, SWITCH_IP, SWITCH_MAC, source.randbytes(8), good=False),
    "ping reply": lambda source, rank: ping(rank, SWITCH_IP, SWITCH_MAC, source.randbytes(8), kind=0),
    "tcp to the switch": lambda source, rank: transit(rank, SWITCH_MAC, SWITCH_IP, 6, source.randbytes(20)),
    "udp to a known host": lambda source, rank: transit(rank, rank_mac(1), rank_ip(1), 17, source.randbytes(30)),
    "tcp to rank 0": lambda source, rank: transit(rank, rank_mac(0), rank_ip(0), 6, source.randbytes(30)),
    "for another switch": lambda source, rank: udp_frame(rank, source.randbytes(60), dst_ip=OTHER_IP),
    "broadcast": lambda source, rank: ethernet(BROADCAST, rank, 0x1234, source.randbytes(source.randrange(60))),
    "unknown": lambda source, rank: ethernet(OTHER_MAC, rank, 0x86DD, source.randbytes(40)),
    "udp to another service": lambda source, rank: udp_frame(rank, source.randbytes(9), dst_port=53),
    "hello": lambda source, rank: udp_frame(rank, wire.pack_hello(JOB, source.getrandbits(64))),
}
