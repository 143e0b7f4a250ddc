"""Checksum completion and segmentation of frames that Linux has not sent over a wire.

A frame from this machine, or from a container on it, arrives with a partial checksum (of the pseudo header), and
successive datagrams as one super-frame (GSO). With PACKET_VNET_HDR each frame has a `virtio_net_hdr`: flags, GSO type,
header length, segment size, start of the checksummed bytes, and offset of the checksum from there.
"""

from __future__ import annotations

import struct
from typing import Final

from p4reduce_contracts.wire import internet_checksum
from p4reduce_runtime.datagrams import ENCAP_BYTES

HEADER: Final = struct.Struct("<BBHHHH")
NEEDS_CHECKSUM: Final = 1
GSO_UDP_L4: Final = 5
CHECKSUM_OFFSET: Final = 6
"""The offset of the checksum in a UDP header; no other protocol has the same."""
PLAIN: Final = bytes(HEADER.size)
"""The header of a complete frame."""


def complete(received: bytes) -> list[bytes]:
    """Return the complete frames of a received frame with its virtio_net_hdr.

    Super-frames are segmented only if they are UDP over IPv4 without a VLAN tag.
    """
    flags, kind, _, segment, start, offset = HEADER.unpack_from(received)
    frame = received[HEADER.size :]
    if kind == GSO_UDP_L4 and 0 < segment < len(frame) - ENCAP_BYTES and start == 34 and _is_udp(frame):
        payload = frame[ENCAP_BYTES:]
        pieces = [payload[at : at + segment] for at in range(0, len(payload), segment)]
        return [_datagram(frame, number, piece) for number, piece in enumerate(pieces)]
    if flags & NEEDS_CHECKSUM and start + offset + 2 <= len(frame):
        at = start + offset
        checksum = _udp_checksum(frame[start:]) if offset == CHECKSUM_OFFSET else internet_checksum(frame[start:])
        return [frame[:at] + checksum.to_bytes(2, "big") + frame[at + 2 :]]
    return [frame]


def _is_udp(frame: bytes) -> bool:
    return frame[12:15] == b"\x08\0\x45" and frame[23] == 17


def _datagram(run: bytes, number: int, payload: bytes) -> bytes:
    """Return the frame of one datagram of a run; like the kernel it counts up the identification."""
    identification = int.from_bytes(run[18:20], "big") + number & 0xFFFF
    ip = run[14:16] + struct.pack(">HH", 28 + len(payload), identification) + run[20:24]
    ip += internet_checksum(ip + run[26:34]).to_bytes(2, "big") + run[26:34]
    udp = run[34:38] + (8 + len(payload)).to_bytes(2, "big")
    pseudo = run[26:34] + b"\0\x11" + udp[4:6]
    return run[:14] + ip + udp + _udp_checksum(pseudo + udp + payload).to_bytes(2, "big") + payload


def _udp_checksum(data: bytes) -> int:
    """Return the Internet checksum as UDP transmits it: 0 stands for no checksum (RFC 768)."""
    return internet_checksum(data) or 0xFFFF
