"""Ranks' frames over veth pairs, as fast as they are answered: packets into one end, the switch at the other.

Results are counted by the kernel on the ranks' interfaces and not read, so that reading costs nothing. All is in this
process's own network namespace.
"""

from __future__ import annotations

import socket
import time
from itertools import cycle
from pathlib import Path
from typing import Final

import numpy as np

from p4reduce_contracts.artifacts import SwitchGeometry
from p4reduce_controller.config import SwitchConfig
from p4reduce_controller.registry.job import Grant
from p4reduce_lab.bench.load import Contributions, run_head
from p4reduce_lab.network import Interface, NetworkBuilder
from p4reduce_lab.processes import Child
from p4reduce_runtime.underlay import ENCAP_BYTES

_ANSWER_S: Final = 10.0
_POLL_S: Final = 0.00005
_BUFFER_BYTES: Final = 8 << 20
_SO_SNDBUFFORCE: Final = 32
_SOL_PACKET: Final = 263
_PACKET_VNET_HDR: Final = 15


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

    def prepare(self, shape: SwitchGeometry, grant: Grant) -> None:
        """Make the frames for this grant, before `load`."""
        switch, slots = SwitchConfig(), grant.slots.count
        self._frames = Contributions(shape, grant, switch, encapsulated=not self._runs)
        size = self._frames.frame_bytes
        self._payload_bytes = size if self._runs else size - ENCAP_BYTES
        self._heads = [run_head(child.address, switch, self._payload_bytes, slots) for child in grant.children]

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
        for frame, opened in zip(self._frames.bytes, cycle(self._sockets), strict=False):  # a slot's together
            opened.send(frame.data)

    def _answered(self) -> int:
        """Return how many frames have come out at the ranks' ends so far; those of a run have one packet's headers."""
        payload = 0
        for line in Path("/proc/self/net/dev").read_text(encoding="ascii").splitlines():
            name, _, counts = line.partition(":")
            if name.strip() in self._outside:
                total, packets = (int(count) for count in counts.split()[:2])
                payload += total - ENCAP_BYTES * packets
        return payload // self._payload_bytes
