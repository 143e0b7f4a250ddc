"""A command beside a network device that damages UDP packets, by an eBPF program (tcx, Linux 6.6).

`python -m rigs.faulty_link FAULT DEVICE COMMAND...`, as root, in the device's namespace: the fault ends with COMMAND.
"""

from __future__ import annotations

import ctypes
import platform
import socket
import struct
import subprocess
import sys
from typing import Final

from rigs.python_path import PYTHONPATH

_CALL: Final = {"x86_64": 321, "aarch64": 280}.get(platform.machine(), -1)
_PROG_LOAD, _LINK_CREATE, _SCHED_CLS, _INGRESS, _EGRESS = 5, 28, 3, 46, 47
_UDP = 17
_DAMAGE = [  # byte 100 of the packet becomes 0x5A: bpf_skb_store_bytes
    *((0x72, 10, -8, 0x5A), (0xBF, 0x61, 0, 0), (0xB7, 2, 0, 100), (0xBF, 0xA3, 0, 0), (0x07, 3, 0, -8)),
    *((0xB7, 4, 0, 1), (0xB7, 5, 0, 0), (0x85, 0, 0, 9)),
]


FAULTS: Final = {
    "batches": (_INGRESS, 1514, _DAMAGE),
    "batches up": (_EGRESS, 1514, _DAMAGE),
    # one in 20: bpf_get_prandom_u32
    "frames up": (_EGRESS, 1000, [(0x85, 0, 0, 7), (0x25, 0, len(_DAMAGE), (1 << 32) // 20), *_DAMAGE]),
}
"""Name -> the direction, the least bytes of the packets concerned, and the instructions for them."""


def _bpf(command: int, attributes: bytes) -> int:
    given = ctypes.create_string_buffer(attributes, 128)
    descriptor: int = ctypes.CDLL(None).syscall(_CALL, command, given, len(given))
    if descriptor < 0:
        sys.exit("this kernel takes no eBPF program")
    return descriptor


def _attach(fault: str, device: str) -> int:
    way, least, instructions = FAULTS[fault]
    program = [
        *((0xBF, 0x16, 0, 0), (0x30, 0, 0, 23), (0x55, 0, len(instructions) + 2, _UDP)),  # the protocol of an IP packet
        *((0x61, 0x62, 0, 0), (0xB5, 2, len(instructions), least)),  # its length
        *(*instructions, (0xB7, 0, 0, 0), (0x95, 0, 0, 0)),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("<BBhi", *each) for each in program))
    terms = ctypes.create_string_buffer(b"GPL")
    loaded = _bpf(_PROG_LOAD, struct.pack("<IIQQ", _SCHED_CLS, len(program), *map(ctypes.addressof, (code, terms))))
    return _bpf(_LINK_CREATE, struct.pack("<IIII", loaded, socket.if_nametoindex(device), way, 0))


def faulty(fault: str, device: str, command: list[str]) -> list[str]:
    return ["env", f"PYTHONPATH={PYTHONPATH}", sys.executable, "-m", __name__, fault, device, *command]


if __name__ == "__main__":
    held = _attach(*sys.argv[1:3])
    sys.exit(subprocess.run(sys.argv[3:], check=False).returncode)
