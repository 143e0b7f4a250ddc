"""Ranks' frames over veth pairs, as fast as they are answered: packets into one end, the switch at the other.

Results are counted by the kernel on the ranks' interfaces and not read, so that reading costs nothing. All is in this
process's own network namespace.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import time
from pathlib import Path
from typing import Final

import numpy as np

from p4reduce_contracts.artifacts import SwitchGeometry
from p4reduce_controller.config import SwitchConfig
from p4reduce_controller.registry.job import Grant
from p4reduce_lab.bench.load import Contributions, run_head
from p4reduce_lab.network import Interface, NetworkBuilder
from p4reduce_lab.processes import Child
from p4reduce_runtime.datagrams import ENCAP_BYTES

_ANSWER_S: Final = 10.0
_POLL_S: Final = 0.00005
_BUFFER_BYTES: Final = 8 << 20
_SO_SNDBUFFORCE: Final = 32
_BATCH: Final = 64
_SOL_PACKET: Final = 263
_PACKET_VNET_HDR: Final = 15


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


class _Message(ctypes.Structure):  # struct mmsghdr
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_bytes", ctypes.c_uint32),
        ("vectors", ctypes.POINTER(_Vector)),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_bytes", ctypes.c_size_t),
        ("flags", ctypes.c_int),
        ("sent", ctypes.c_uint),
    )


class VethPeers:
    """A veth pair for each rank: `inside` are the switch's ends, frames go in at the others.

    With `runs`, a rank's frames go in as one super-frame, as they come from a UDP socket with GSO; without, one by one.
    """

    def __init__(self, name: str, world_size: int, builder: NetworkBuilder, *, runs: bool = False) -> None:
        """Make them, in this network namespace. Raises SetupError where the machine cannot."""
        self.inside = [f"{name}s{rank}" for rank in range(world_size)]
        self._runs = runs
        self._outside = [f"{name}r{rank}" for rank in range(world_size)]
        self._sockets = []
        for inside, outside in zip(self.inside, self._outside, strict=True):
            builder.add_veth(Interface(inside), Interface(outside))
            opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)  # protocol 0: it receives nothing
            opened.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _BUFFER_BYTES)
            if runs:
                opened.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
            opened.bind((outside, 0))
            self._sockets.append(opened)
        self._libc = ctypes.CDLL(None, use_errno=True)

    def prepare(self, shape: SwitchGeometry, grant: Grant) -> None:
        """Make the frames for this grant, before `load`."""
        switch, ranks, slots = SwitchConfig(), len(grant.children), grant.slots.count
        self._frames = Contributions(shape, grant, switch, encapsulated=not self._runs)
        size = self._frames.frame_bytes
        self._payload_bytes = size if self._runs else size - ENCAP_BYTES
        self._heads = [run_head(child.address, switch, self._payload_bytes, slots) for child in grant.children]
        first = self._frames.bytes.ctypes.data
        self._messages: list[ctypes.Array[_Message]] = []
        for rank in range(ranks):
            numbers = range(rank, len(self._frames), ranks)
            vectors = (_Vector * len(numbers))(*(_Vector(first + size * number, size) for number in numbers))
            messages = (_Message * len(numbers))()
            for message, vector in zip(messages, vectors, strict=True):
                message.vectors, message.vector_count = ctypes.pointer(vector), 1
            self._messages.append(messages)

    def load(self, seconds: float, switch: Child) -> tuple[int, float]:
        """Send rounds for so long; return how many frames were answered, and the seconds. Raises ProcessError.

        A round is sent when all but the last one before it are answered, so that the switch always has work.
        """
        sent, before, began = 0, self._answered(), time.perf_counter()
        while time.perf_counter() - began < seconds:
            self._frames.move_on()
            if self._runs:
                self._send_runs()
            else:
                self._send()
            self._wait(before + sent, switch)
            sent += len(self._frames)
        self._wait(before + sent, switch)
        return sent, time.perf_counter() - began

    def close(self) -> None:
        """Close the sockets; the pairs go with the network namespace."""
        for opened in self._sockets:
            opened.close()

    def _wait(self, answered: int, switch: Child) -> None:
        """Wait until so many frames have been answered, without keeping a core from the switch."""
        deadline = time.monotonic() + _ANSWER_S
        while self._answered() < answered:
            if time.monotonic() > deadline:
                raise switch.failure("did not answer all frames of a round")
            time.sleep(_POLL_S)

    def _send_runs(self) -> None:
        slots = len(self._frames) // len(self._sockets)
        by_rank = np.ascontiguousarray(self._frames.bytes.reshape(slots, len(self._sockets), -1).transpose(1, 0, 2))
        for opened, head, payloads in zip(self._sockets, self._heads, by_rank, strict=True):
            opened.sendmsg([head, payloads.data])

    def _send(self) -> None:
        slots = len(self._frames) // len(self._sockets)
        for first in range(0, slots, _BATCH):
            for opened, messages in zip(self._sockets, self._messages, strict=True):
                self._send_all(opened.fileno(), messages, first, min(slots, first + _BATCH))

    def _send_all(self, descriptor: int, messages: ctypes.Array[_Message], first: int, end: int) -> None:
        while first < end:
            at = ctypes.byref(messages, first * ctypes.sizeof(_Message))
            sent = self._libc.sendmmsg(descriptor, at, end - first, 0)
            if sent < 0:
                error = ctypes.get_errno()
                if error not in (errno.EINTR, errno.ENOBUFS):
                    raise OSError(error, os.strerror(error))
                continue
            first += sent

    def _answered(self) -> int:
        """Return how many frames have come out at the ranks' ends so far; those of a run have one packet's headers."""
        payload = 0
        for line in Path("/proc/self/net/dev").read_text(encoding="ascii").splitlines():
            name, _, counts = line.partition(":")
            if name.strip() in self._outside:
                total, packets = (int(count) for count in counts.split()[:2])
                payload += total - ENCAP_BYTES * packets
        return payload // self._payload_bytes
