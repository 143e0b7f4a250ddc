"""Where frames come from and go to: a UDP underlay (no root) or Linux interfaces."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from p4reduce_switch.pump import Buffers, Reason

Receiver = Callable[[int, bytes], None]
"""Takes (port, frame) for each frame that arrived."""


class PortError(Exception):
    """A port cannot be opened; the message says what to do."""


class Runs(enum.IntEnum):
    """Whether the native loop sends frames of equal length as one super-frame, which is cut up on its way (GSO)."""

    OFF = 0
    AUTO = 1
    """On an interface once such a one has come by it, since what is behind it can cut them up; on UDP always."""
    ON = 2


class Pump(Protocol):
    """The native loop of a set of ports. One thread uses it, and lends it the switch's lock for `turn`."""

    @property
    def buffers(self) -> Buffers:
        """The batch that it has run in part."""

    def turn(self, lock: NDArray[np.int64]) -> Reason:
        """Serve the ports until Python is needed, or somebody wants the lock that is lent (its words)."""

    def take_held(self, receive: Receiver) -> None:
        """Hand over, in Python, what it received and has made no frames of."""


class Ports(Protocol):
    """A set of switch ports behind one or more sockets."""

    def filenos(self) -> list[int]:
        """The descriptors to wait on for arriving frames."""

    def drain(self, fileno: int, receive: Receiver) -> None:
        """Hand over what has arrived at `fileno`, up to a bounded burst; never blocks."""

    def send(self, port: int, frame: bytes) -> bool:
        """Send a frame out of `port`; False if the port is not one of these. Never blocks."""

    def pump(self, wake: int) -> Pump | None:
        """Return the native loop, whose waiting ends when the descriptor `wake` is readable; None: there is none here.

        It may be called once. The ports can still be drained in Python afterwards.
        """

    def close(self) -> None:
        """Close the sockets."""


__all__ = ["PortError", "Ports", "Pump", "Receiver", "Runs"]
