"""The transport's UDP socket as the kernels use it, with the memory that they receive into."""

from __future__ import annotations

import os
import weakref
from types import ModuleType
from typing import Annotated, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p4reduce.protocol.state import Received, Words
from p4reduce_runtime import datagrams, kernels
from p4reduce_runtime.datagrams import Destination, PollFd, SocketState
from p4reduce_runtime.records import Table, zeros

_RING_BYTES: Final = 4 * datagrams.RECEIVE_BYTES
_BURST: Final = 1024
"""Datagrams that are taken in at once."""


class Socket(NamedTuple):
    """A connected UDP socket, and memory for what it receives and sends."""

    io: Table[SocketState]
    to: Table[Destination]
    readable: Table[PollFd]
    writable: Table[PollFd]
    """The descriptors with which to wait until the socket is readable, or writable."""
    vector: Annotated[NDArray[np.int64], "int64[:, ::1]"]
    """[2, frames]: the address and the length of each frame that is sent."""
    ring: Words
    received: Table[Received]


class Channel:
    """A connected UDP socket, for one thread at a time.

    It has a descriptor of its own, made from the given one: closing that must not leave the kernels, which may
    be at work on another thread, with a number that is by then another file's. `pump`: the kernel module of that name.
    `plain`: whether every frame is sent by itself; the kernels may set it. Runs are short until `run_bytes` is set.
    """

    def __init__(self, pump: ModuleType, descriptor: int, *, plain: bool) -> None:
        self.pump = pump
        descriptor = os.dup(descriptor)
        self._finalizer = weakref.finalize(self, os.close, descriptor)
        self._finalizer.atexit = False  # at exit the last collective still needs it
        self._to = datagrams.destination(plain=plain, run_bytes=datagrams.SHORT_RUN_BYTES)
        self.socket = kernels.arguments(
            Socket(
                io=datagrams.socket_state(descriptor),
                to=self._to,
                readable=datagrams.polled([descriptor]),
                writable=datagrams.polled([descriptor], datagrams.WRITABLE),
                vector=np.empty((2, 0), np.int64),
                ring=np.empty(_RING_BYTES // 4, np.uint32),
                received=zeros(Received, _BURST),
            )
        )

    def close(self) -> None:
        """Close the descriptor; only when no collective runs over it. A garbage-collected channel closes it too."""
        self._finalizer()

    @property
    def plain(self) -> bool:
        """Whether every frame is sent by itself, and not in runs of equal length."""
        return bool(self._to["plain"][0])

    @plain.setter
    def plain(self, plain: bool) -> None:
        self._to["plain"] = plain

    @property
    def run_bytes(self) -> int:
        """The maximum length of a run, in bytes."""
        return int(self._to["run_bytes"][0])

    @run_bytes.setter
    def run_bytes(self, size: int) -> None:
        self._to["run_bytes"] = size

    def make_room(self, frames: int) -> None:
        """See to it that so many frames can be sent at once."""
        if self.socket.vector.shape[1] < frames:
            self.socket = self.socket._replace(vector=np.empty((2, frames), np.int64))


def load_pump() -> ModuleType | None:
    """Return the loop over a socket, compiled if need be; None where there is none."""
    return kernels.load("p4reduce.protocol.pump") if datagrams.supported() else None


def make_channel(descriptor: int, *, plain: bool) -> Channel | None:
    """Return what lets a collective use a connected UDP socket by itself; None where kernels are not compiled."""
    pump = load_pump()
    return None if pump is None else Channel(pump, descriptor, plain=plain)
