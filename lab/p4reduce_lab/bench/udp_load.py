"""Ranks' frames over UDP, as fast as they are answered: a round of contributions to every slot, then its results."""

from __future__ import annotations

import ipaddress
import socket
import time

import numpy as np

from p4reduce_contracts.artifacts import SwitchGeometry
from p4reduce_controller.config import SwitchConfig
from p4reduce_controller.registry.hello import Address
from p4reduce_controller.registry.job import Grant
from p4reduce_lab.bench.load import JOB, Contributions
from p4reduce_lab.processes import Child
from p4reduce_runtime.datagrams import MAX_SEGMENTS, RUN_BYTES
from p4reduce_runtime.underlay import ENCAP_BYTES, pack_hello

_SOL_UDP, _UDP_SEGMENT, _UDP_GRO = 17, 103, 104
_SO_RCVBUFFORCE = 33
_BUFFER_BYTES = 8 << 20
_ANSWER_S = 10.0


class UdpPeers:
    """The sockets of all ranks, connected to one switch; with `runs`, datagrams go and come in runs (GSO, GRO)."""

    def __init__(self, host: str, port: int, world_size: int, *, runs: bool) -> None:
        """Open them, and send HELLO from each, in the order of the ranks: the switch gives ports in that order."""
        self._runs = runs
        self._buffer = bytearray(65536)
        self._sockets = []
        for rank in range(world_size):
            opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._sockets.append(opened)
            try:
                opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
            except OSError:  # not root: what the system grants
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            opened.settimeout(_ANSWER_S)
            opened.connect((host, port))
            opened.send(pack_hello(JOB, 1 + rank))

    def addresses(self) -> list[Address]:
        """Return where the ranks are, to a switch that has given out no ports before."""
        places = [opened.getsockname() for opened in self._sockets]
        ips = [int(ipaddress.IPv4Address(host)) for host, _ in places]
        return [Address(1 + rank, 0x06 << 40 | ip, ip, places[rank][1]) for rank, ip in enumerate(ips)]

    def prepare(self, shape: SwitchGeometry, grant: Grant) -> None:
        """Make the frames for this grant, before `load`."""
        self._frames = Contributions(shape, grant, SwitchConfig(), encapsulated=False)
        if self._runs:
            for opened in self._sockets:
                opened.setsockopt(_SOL_UDP, _UDP_SEGMENT, self._frames.frame_bytes)
                opened.setsockopt(_SOL_UDP, _UDP_GRO, 1)

    def load(self, seconds: float, switch: Child) -> tuple[int, float]:
        """Send rounds for so long; return how many frames were answered, and the seconds. Raises ProcessError."""
        done, began = 0, time.perf_counter()
        while (spent := time.perf_counter() - began) < seconds:
            self._frames.move_on()
            try:
                done += self._round()
            except OSError as error:
                raise switch.failure(f"did not answer all frames of a round ({error})") from None
        return done, spent

    def close(self) -> None:
        """Close the sockets."""
        for opened in self._sockets:
            opened.close()

    def _round(self) -> int:
        frames, ranks = self._frames, self._frames.world_size
        slots = len(frames) // ranks
        by_rank = np.ascontiguousarray(frames.bytes.reshape(slots, ranks, -1).transpose(1, 0, 2))
        longest = min(MAX_SEGMENTS, RUN_BYTES // (frames.frame_bytes + ENCAP_BYTES))  # as a worker's runs are
        step = longest if self._runs else 1
        for first in range(0, slots, step):
            for rank, opened in enumerate(self._sockets):
                opened.send(by_rank[rank, first : first + step].data)
        for opened in self._sockets:
            self._receive(opened, slots * frames.frame_bytes)
        return len(frames)

    def _receive(self, opened: socket.socket, expected: int) -> None:
        while expected > 0:
            expected -= opened.recv_into(self._buffer)
