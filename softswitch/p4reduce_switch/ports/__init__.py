"""Switch ports: a UDP underlay, which needs no root, or Linux interfaces."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from p4reduce_switch.datapath import Buffers, Reason

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Counters = TypeVar("Counters", bound="DataclassInstance")
Receiver = Callable[[int, bytes], None]
"""Called with (port, frame) for each received frame."""


class PortError(Exception):
    """A port cannot be opened; the message says what to do."""


class PortFullError(Exception):
    """The socket of a port takes no frame at present; the frame was not sent."""

    def __init__(self, fileno: int) -> None:
        super().__init__(fileno)
        self.fileno = fileno


class Gso(enum.IntEnum):
    """Whether the native loop uses generic segmentation offload: equally long datagrams sent as one super-frame."""

    OFF = 0
    AUTO = 1
    """On an interface once it has received a super-frame, so that its peer can segment them; on UDP always."""
    ON = 2


class DatapathLoop(Protocol):
    """The native loop of a set of ports, for one thread, which holds the switch's lock during `run_once`."""

    @property
    def buffers(self) -> Buffers:
        """Its buffers, with the current batch."""

    def run_once(self, lock: NDArray[np.void]) -> Reason:
        """Run the loop until Python is needed, or the lock, given by its LockState, has waiters."""

    def receive_pending(self, receive: Receiver) -> None:
        """Pass the received datagrams that are not converted to frames yet to `receive`."""


class Ports(Protocol):
    """A set of switch ports behind one or more sockets."""

    def filenos(self) -> list[int]:
        """The descriptors to wait on for arriving frames."""

    def drain(self, fileno: int, receive: Receiver) -> None:
        """Pass the frames that have arrived at `fileno` to `receive`, up to a bounded burst; do not block."""

    def send(self, port: int, frame: bytes) -> bool:
        """Send a frame out of `port`; False if the port is not one of these. Does not block.

        PortFullError: only after `wait_when_full(True)`.
        """

    def wait_when_full(self, wait: bool) -> None:
        """Choose what happens to a frame for which a socket has no room: PortFullError, or it is lost, the default."""

    def datapath_loop(self, wake: int) -> DatapathLoop | None:
        """Return the native loop, which returns when the descriptor `wake` is readable; None: these ports have none.

        To be called once. The ports can still be drained in Python afterwards.
        """

    def close(self) -> None:
        """Close the sockets."""


def with_native(counters: Counters, native: np.void) -> Counters:
    """Return counters plus the fields of the same names that the native loop counts."""
    names = {field.name for field in dataclasses.fields(counters)} & set(native.dtype.names or ())
    return dataclasses.replace(counters, **{name: getattr(counters, name) + int(native[name]) for name in names})


__all__ = ["PortError", "PortFullError", "Ports", "DatapathLoop", "Receiver", "Gso", "with_native"]
