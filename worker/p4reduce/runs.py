"""Whether frames may leave in runs, and how long these may be.

A run is many frames of equal length in one system call, which the kernel cuts up on its way out.
It costs the kernel about as much as one frame. But where the switch sits behind a virtual interface of this machine
and reads it packet by packet, as BMv2 does, the kernel hands it the run uncut, and the switch drops that as no frame.
And a shaper cuts up what is longer than its burst, so that each of its frames costs as much as a run. Nothing tells
either for sure, so it is tried: after a collective, one frame of it that was answered goes out again, twice and as one
run. A switch answers what is repeated to its sender alone, and so does no harm; two answers say that the switch saw two
frames. Without two answers after a few tries, runs are not for this path. With them the longest run is tried: the
switch's own are as long as those that reach it, so a long one that comes back says that both ways carry them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Final

from p4reduce.errors import FrameError
from p4reduce.transport import UdpTransport
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire import RESULT, unpack
from p4reduce_runtime.datagrams import ENCAP_BYTES, MAX_SEGMENTS, RUN_BYTES, SHORT_RUN_BYTES

VARIABLE: Final = "P4REDUCE_SEGMENTATION"
FEWEST_SLOTS: Final = 8
"""Collectives with fewer have no runs worth a try."""
_TRIES: Final = 3


class Runs:
    """What is known of a path: `allowed` is None as long as it has to be tried; `longest` is in bytes, with headers."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        """ValueError when the environment's P4REDUCE_SEGMENTATION is neither auto, on nor off."""
        chosen = environment.get(VARIABLE, "auto")
        if chosen not in ("auto", "on", "off"):
            raise ValueError(f"{VARIABLE} is {chosen!r}; it has to be auto, on or off")
        self.allowed: bool | None = {"auto": None, "on": True, "off": False}[chosen]
        self.longest = SHORT_RUN_BYTES
        self._tries_left = self._long_tries_left = _TRIES

    @property
    def known(self) -> bool:
        """Whether there is nothing left to try."""
        return self.allowed is False or self.allowed is True and not self._long_tries_left

    def try_path(self, transport: UdpTransport, lease: Lease, answered: bytes, timeout_s: float) -> None:
        """Find out more with a frame that was answered, in up to `timeout_s`."""
        if self.allowed is None:
            self._tries_left -= 1
            answers = _repeat(transport, lease, answered, 2, timeout_s)
            if answers >= 2:
                self.allowed = True
            elif answers < 0 or not self._tries_left:
                self.allowed = False
            return
        count = min(MAX_SEGMENTS, RUN_BYTES // (len(answered) + ENCAP_BYTES))
        if count * (len(answered) + ENCAP_BYTES) > 2 * SHORT_RUN_BYTES:
            self._long_tries_left -= 1
            transport.longest_run = 0
            _repeat(transport, lease, answered, count, timeout_s)
            if transport.longest_run > SHORT_RUN_BYTES:
                self.longest, self._long_tries_left = RUN_BYTES, 0


def _repeat(transport: UdpTransport, lease: Lease, answered: bytes, count: int, timeout_s: float) -> int:
    """Send a frame again as one run; return how many answers came in time, -1 where runs are refused."""
    sent = unpack(lease.geometry, answered)
    until, answers = time.monotonic() + timeout_s, 0
    if not transport.send_run([answered] * count):
        return -1
    while answers < count and (left_s := until - time.monotonic()) > 0:
        for payload in transport.receive(left_s):
            try:
                frame = unpack(lease.geometry, payload)
            except FrameError:
                continue
            answers += (
                frame.type == RESULT
                and (frame.job, frame.epoch, frame.slot, frame.round) == (sent.job, sent.epoch, sent.slot, sent.round)
                and frame.secret == lease.secret
            )
    return answers
