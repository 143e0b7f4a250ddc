"""Where frames come from and go to: a UDP underlay (no root) or Linux interfaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Receiver = Callable[[int, bytes], None]
"""Takes (port, frame) for each frame that arrived."""


class PortError(Exception):
    """A port cannot be opened; the message says what to do."""


class Ports(Protocol):
    """A set of switch ports behind one or more sockets."""

    def filenos(self) -> list[int]:
        """The descriptors to wait on for arriving frames."""

    def drain(self, fileno: int, receive: Receiver) -> None:
        """Hand over what has arrived at `fileno`, up to a bounded burst; never blocks."""

    def send(self, port: int, frame: bytes) -> bool:
        """Send a frame out of `port`; False if the port is not one of these. Never blocks."""

    def close(self) -> None:
        """Close the sockets."""


__all__ = ["PortError", "Ports", "Receiver"]
