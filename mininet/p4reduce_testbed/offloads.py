"""Offloads of an interface: off, so that what a switch reads from a veth is what a wire would carry.

With them on, frames leave without checksums and in bursts larger than the MTU. The ioctl is ethtool's own
(linux/ethtool.h); the program need not be installed.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import socket
import struct

from p4reduce_testbed.errors import TestbedError

_SIOCETHTOOL = 0x8946
_GET_AND_SET = {
    "rx-checksumming": (0x14, 0x15),
    "tx-checksumming": (0x16, 0x17),
    "scatter-gather": (0x18, 0x19),
    "tcp-segmentation": (0x1E, 0x1F),
    "segmentation": (0x23, 0x24),
    "receive": (0x2B, 0x2C),
}
_VALUE = struct.Struct("=II")  # struct ethtool_value: command, data


def read_offloads(interface: str) -> dict[str, bool]:
    """Return which offloads are on."""
    return {name: bool(_ioctl(interface, get, 0)) for name, (get, _) in _GET_AND_SET.items()}


def turn_off(interface: str) -> None:
    """Turn all of them off. Raises TestbedError if one stays on."""
    for _, set_ in _GET_AND_SET.values():
        try:
            _ioctl(interface, set_, 0)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise TestbedError(f"cannot turn the offloads of {interface} off: {error}") from error
    if left := [name for name, on in read_offloads(interface).items() if on]:
        raise TestbedError(f"the offloads {', '.join(left)} of {interface} cannot be turned off")


def _ioctl(interface: str, command: int, data: int) -> int:
    buffer = ctypes.create_string_buffer(_VALUE.pack(command, data), _VALUE.size)
    request = struct.pack("16sP8x", interface.encode(), ctypes.addressof(buffer))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCETHTOOL, request)
    return int(_VALUE.unpack(buffer.raw)[1])
