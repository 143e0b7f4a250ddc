"""UDP segmentation offload (GSO): whether the path to the switch carries it, and how long the datagrams may be.

With GSO many frames of equal length are one datagram in one system call, which the kernel segments as late as possible;
it costs the kernel about as much as one frame. But where the switch reads a virtual interface of this machine packet by
packet, as BMv2 does, the kernel delivers the datagram unsegmented, and the switch drops it as malformed. And a shaper
segments a datagram that is longer than its burst, so that each frame costs as much as a datagram. Neither can be read
from the system, so it is measured: after a collective, one of its frames that was answered is sent again, twice, as one
datagram. The switch answers a repeated frame to its sender alone; two answers show that it received two frames. Without
two answers in a few probes the path has no GSO. With them the longest datagram is probed: the switch's own are as long
as those that reach it, so a long one that comes back shows that both directions carry it.

Kernels 7.0.0 to 7.1.4 damage some of these datagrams, as some network cards do. So GSO ends when frames have arrived
damaged in a few collectives. An empty datagram then asks the embedded switch to send this peer none either.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Final

from p4reduce.errors import FrameError
from p4reduce.transport import UdpTransport
from p4reduce_contracts.wire.frames import unpack
from p4reduce_contracts.wire.geometry import Geometry
from p4reduce_contracts.wire.numbers import RESULT
from p4reduce_runtime.datagrams import MAX_SEGMENTS, RUN_BYTES, SHORT_RUN_BYTES
from p4reduce_runtime.environment import P4REDUCE_SEGMENTATION
from p4reduce_runtime.underlay import ENCAP_BYTES

FEWEST_SLOTS: Final = 2
"""Slots below which GSO is not used: a collective with fewer has one frame, which is a datagram in any case."""
_PROBES: Final = 3
DAMAGED_COLLECTIVES: Final = 3
"""Number of collectives with damaged frames from which on GSO is not used: one alone can have another cause."""


class GsoProbe:
    """The measurements of a path. `allowed`: None until measured; `longest`: bytes of a datagram, with headers."""

    def __init__(self, environment: Mapping[str, str] = os.environ, *, damages: bool = False) -> None:
        """`damages`: as of an earlier path to the same switches.

        ConfigError when the environment's P4REDUCE_SEGMENTATION is neither auto, on nor off.
        """
        self.allowed = P4REDUCE_SEGMENTATION.read(environment)
        self._chosen = self.allowed is not None
        self._damaged = DAMAGED_COLLECTIVES if damages else 0
        if self.damages:
            self.allowed = False
        self.longest = SHORT_RUN_BYTES
        self._probes_left = self._long_probes_left = _PROBES

    @property
    def known(self) -> bool:
        """Whether there is nothing left to probe."""
        return self.allowed is False or self.allowed is True and not self._long_probes_left

    @property
    def damages(self) -> bool:
        """Whether GSO is not used since frames arrived damaged."""
        return self._damaged >= DAMAGED_COLLECTIVES and not self._chosen

    def saw_damage(self) -> bool:
        """Count a collective in which frames arrived damaged; return whether GSO ends with it."""
        before = self.damages or self.allowed is False
        self._damaged += 1
        if self.damages:
            self.allowed = False
        return self.damages and not before

    def probe(self, udp: UdpTransport, geometry: Geometry, secret: int, answered: bytes, timeout_s: float) -> None:
        """Measure more with a frame that was answered, in up to `timeout_s`; `secret` is that of this rank there."""
        if self.allowed is None:
            self._probes_left -= 1
            answers = _repeat(udp, geometry, secret, answered, 2, timeout_s)
            if answers >= 2:
                self.allowed = True
            elif answers < 0 or not self._probes_left:
                self.allowed = False
            return
        count = min(MAX_SEGMENTS, RUN_BYTES // (len(answered) + ENCAP_BYTES))
        if count * (len(answered) + ENCAP_BYTES) > 2 * SHORT_RUN_BYTES:
            self._long_probes_left -= 1
            udp.longest_run = 0
            _repeat(udp, geometry, secret, answered, count, timeout_s)
            if udp.longest_run > SHORT_RUN_BYTES:
                self.longest, self._long_probes_left = RUN_BYTES, 0


def _repeat(  # noqa: PLR0917
    udp: UdpTransport, geometry: Geometry, secret: int, answered: bytes, count: int, timeout_s: float
) -> int:
    """Send a frame `count` times as one datagram; return how many answers came in time, -1 where GSO is refused."""
    sent = unpack(geometry, answered)
    until, answers = time.monotonic() + timeout_s, 0
    if not udp.send_run([answered] * count):
        return -1
    while answers < count and (left_s := until - time.monotonic()) > 0:
        for payload in udp.receive(left_s):
            try:
                frame = unpack(geometry, payload)
            except FrameError:
                continue
            answers += (
                frame.type == RESULT
                and (frame.job, frame.epoch, frame.slot, frame.round) == (sent.job, sent.epoch, sent.slot, sent.round)
                and frame.secret == secret
            )
    return answers
