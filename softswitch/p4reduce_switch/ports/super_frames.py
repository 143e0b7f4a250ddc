"""What Linux leaves undone in frames that have not seen a wire yet: checksums, and cutting up runs of datagrams.

A frame of this machine, or of a container on it, arrives with a checksum of its headers alone, and a run of datagrams
in one super-frame (GSO). With PACKET_VNET_HDR the kernel says so, in a `virtio_net_hdr` before each frame: flags, kind
of run, bytes of headers, bytes of each datagram, where the checksum's bytes begin, and where it belongs from there.
"""

from __future__ import annotations

import struct
from typing import Final

HEADER: Final = struct.Struct("<BBHHHH")
NEEDS_CHECKSUM: Final = 1
UDP_RUN: Final = 5
ENCAP_BYTES: Final = 42
"""Of Ethernet, IPv4 without options, and UDP."""
PLAIN: Final = bytes(HEADER.size)
"""Before a frame that is complete."""


def complete(received: bytes) -> list[bytes]:
    """Return the frames, as a wire would carry them, of what arrived with its header.

    Runs of other protocols than UDP over IPv4, without a VLAN tag, stay whole.
    """
    flags, kind, _, segment, start, offset = HEADER.unpack_from(received)
    frame = received[HEADER.size :]
    if kind == UDP_RUN and 0 < segment < len(frame) - ENCAP_BYTES and start == 34 and _is_udp(frame):
        payload = frame[ENCAP_BYTES:]
        pieces = [payload[at : at + segment] for at in range(0, len(payload), segment)]
        return [_datagram(frame, number, piece) for number, piece in enumerate(pieces)]
    if flags & NEEDS_CHECKSUM and start + offset + 2 <= len(frame):
        at = start + offset
        return [frame[:at] + _checksum(frame[start:]) + frame[at + 2 :]]
    return [frame]


def _is_udp(frame: bytes) -> bool:
    return frame[12:15] == b"\x08\0\x45" and frame[23] == 17


def _datagram(run: bytes, number: int, payload: bytes) -> bytes:
    """The frame of one datagram of a run; the kernel numbers them too."""
    identification = int.from_bytes(run[18:20], "big") + number & 0xFFFF
    ip = run[14:16] + struct.pack(">HH", 28 + len(payload), identification) + run[20:24]
    ip += _checksum(ip + run[26:34]) + run[26:34]
    udp = run[34:38] + (8 + len(payload)).to_bytes(2, "big")
    pseudo = run[26:34] + b"\0\x11" + udp[4:6]
    return run[:14] + ip + udp + _checksum(pseudo + udp + payload) + payload


def _checksum(data: bytes) -> bytes:
    """The Internet checksum; never 0, which means in UDP that there is none."""
    padded = data + b"\0" * (len(data) % 2)
    return (0xFFFF - int.from_bytes(padded, "big") % 0xFFFF).to_bytes(2, "big")
