"""Contributions of all ranks of a job, as frames: what switches are loaded with."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from p4reduce_contracts.wire.check import check_of
from p4reduce_contracts.wire.frames import Frame, key_of, pack
from p4reduce_contracts.wire.geometry import Geometry
from p4reduce_contracts.wire.numbers import CONTRIBUTE
from p4reduce_controller.config import SwitchConfig
from p4reduce_controller.registry.hello import Address, encapsulation
from p4reduce_controller.registry.job import Grant, rank_children
from p4reduce_controller.registry.slots import SlotRange
from p4reduce_runtime.underlay import AGGREGATION_PORT, ENCAP_BYTES

JOB: Final = 7
EPOCH: Final = 9
_ROUND = struct.calcsize(">BBBBHH")
_CHECKSUM = struct.calcsize(">BBBBHHIIQI")
_UDP_PROTOCOL = 17
_NEEDS_CHECKSUM, _GSO_UDP = 1, 5  # VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_GSO_UDP_L4


def make_grant(addresses: Sequence[Address], slots: int) -> Grant:
    """Return a grant of the first `slots` slots for ranks at these addresses."""
    secrets = tuple(0x1122334455667700 + rank for rank in range(len(addresses)))
    return Grant(JOB, "bench", EPOCH, SlotRange(0, slots), rank_children(addresses, secrets))


def ethernet_addresses(world_size: int) -> list[Address]:
    """Return addresses of ranks at ports 1 and on."""
    first = int(ipaddress.IPv4Address("10.78.0.10"))
    return [Address(1 + rank, 0x020000000100 + rank, first + rank, 40000 + rank) for rank in range(world_size)]


class Contributions:
    """One contribution of every rank to every slot, for one round; they can be moved on.

    The frames lie one behind the other, those of a slot together: each slot's last one completes its round.
    """

    def __init__(self, geometry: Geometry, grant: Grant, switch: SwitchConfig, *, encapsulated: bool) -> None:
        """`encapsulated`: frames have Ethernet, IPv4 and UDP headers; else they are UDP payloads."""
        ranks, slots = range(len(grant.children)), range(grant.slots.count)
        addresses = [child.address for child in grant.children]
        payloads = [_contribution(geometry, grant, rank, slot) for slot in slots for rank in ranks]
        if encapsulated:
            heads = [headers(address, switch, len(payloads[0])) for address in addresses]
            payloads = [heads[at % len(ranks)] + payload for at, payload in enumerate(payloads)]
        self.world_size = len(grant.children)
        self.frame_bytes = len(payloads[0])
        self.bytes = np.frombuffer(b"".join(payloads), np.uint8).reshape(len(payloads), -1).copy()
        """[slots * ranks, frame bytes]."""
        head = ENCAP_BYTES if encapsulated else 0
        self._rounds = self.bytes[:, head + _ROUND : head + _ROUND + 4]
        self._checksums = self.bytes[:, head + _CHECKSUM : head + _CHECKSUM + 2]
        self._sums: NDArray[np.int64] = 0xFFFF - self._checksums.copy().view(">u2").reshape(-1).astype(np.int64)
        self._number = 0
        self.move_on()

    def __len__(self) -> int:
        return len(self.bytes)

    def move_on(self) -> None:
        """Make all frames contributions to the next round."""
        self._number += 1
        self._rounds[:] = np.frombuffer(self._number.to_bytes(4, "big"), np.uint8)
        sums = (self._sums + self._number) % 0xFFFF
        sums[sums == 0] = 0xFFFF
        self._checksums[:] = (0xFFFF - sums).astype(">u2").view(np.uint8).reshape(-1, 2)


def _contribution(geometry: Geometry, grant: Grant, rank: int, slot: int) -> bytes:
    columns = geometry.columns
    words = np.random.default_rng((rank, slot)).integers(0, 1 << 32, columns * geometry.block_words, np.uint32)
    present, blocks = (1 << columns) - 1, words.astype(">u4").tobytes()
    check = check_of(present, blocks, geometry.block_words)
    keys = tuple(key_of(geometry.columns * (slot + 1) + column, 100) for column in range(geometry.columns))
    secret = grant.children[rank].secret
    return pack(
        geometry, Frame(CONTRIBUTE, grant.job_id, present, grant.epoch, slot, 0, 0, secret, check, keys, blocks)
    )


def run_head(address: Address, switch: SwitchConfig, payload_bytes: int, frames: int) -> bytes:
    """Return what goes before the payloads of a run of frames in one write to a packet socket with PACKET_VNET_HDR.

    That is struct virtio_net_hdr, which says how the kernel is to cut the run up (UDP GSO), and the headers of the
    whole, with the sum of the pseudo header in the place of the UDP checksum.
    """
    total = payload_bytes * frames
    head = bytearray(headers(address, switch, total))
    pseudo = head[26:34] + struct.pack(">HH", _UDP_PROTOCOL, 8 + total)
    head[40:42] = (int.from_bytes(pseudo, "big") % 0xFFFF or 0xFFFF).to_bytes(2, "big")
    return struct.pack("=BBHHHH", _NEEDS_CHECKSUM, _GSO_UDP, ENCAP_BYTES, payload_bytes, 34, 6) + bytes(head)


def headers(address: Address, switch: SwitchConfig, payload_bytes: int) -> bytes:
    """Return Ethernet, IPv4 and UDP headers of a frame to the switch; the UDP checksum is left out."""
    to, ports = (switch.mac_value, switch.ip_value), (address.udp_port, AGGREGATION_PORT)
    return encapsulation((address.mac, address.ip), to, ports, payload_bytes)
