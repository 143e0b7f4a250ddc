"""Whether frames may leave in runs: many of equal length in one system call, which the kernel cuts up on its way out.

A run costs the kernel about as much as one frame. But where the switch sits behind a virtual interface of this machine
and reads it packet by packet, as BMv2 does, the kernel hands it the run uncut, and the switch drops that as no frame.
No setting of the interface tells for sure, so it is tried: after a collective, one frame of it that was answered goes
out again, twice and as one run. A switch answers what is repeated to its sender alone, and so does no harm; two answers
say that the switch saw two frames. Without two answers after a few tries, runs are not for this path.
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

VARIABLE: Final = "P4REDUCE_SEGMENTATION"
FEWEST_SLOTS: Final = 8
"""Collectives with fewer have no runs worth a try."""
_TRIES: Final = 3


class Runs:
    """What is known of a path: `allowed` is None as long as it has to be tried."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        """ValueError when the environment's P4REDUCE_SEGMENTATION is neither auto, on nor off."""
        chosen = environment.get(VARIABLE, "auto")
        if chosen not in ("auto", "on", "off"):
            raise ValueError(f"{VARIABLE} is {chosen!r}; it has to be auto, on or off")
        self.allowed: bool | None = {"auto": None, "on": True, "off": False}[chosen]
        self._tries_left = _TRIES

    def try_path(self, transport: UdpTransport, lease: Lease, answered: bytes, timeout_s: float) -> None:
        """Send a frame that was answered twice as one run, and wait up to `timeout_s` for two answers."""
        sent = unpack(lease.geometry, answered)
        self._tries_left -= 1
        until, answers = time.monotonic() + timeout_s, 0
        if not transport.send_run([answered, answered]):
            self.allowed = False
            return
        while answers < 2 and (left_s := until - time.monotonic()) > 0:
            for payload in transport.receive(left_s):
                try:
                    frame = unpack(lease.geometry, payload)
                except FrameError:
                    continue
                answers += (
                    frame.type == RESULT
                    and (frame.job, frame.epoch, frame.slot, frame.round)
                    == (sent.job, sent.epoch, sent.slot, sent.round)
                    and frame.secret == lease.secret
                )
        if answers == 2:
            self.allowed = True
        elif not self._tries_left:
            self.allowed = False
