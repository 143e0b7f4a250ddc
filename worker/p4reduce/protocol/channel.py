"""The transport's UDP sockets as the kernels use them, with the memory that they receive into."""

from __future__ import annotations

import importlib
import os
import weakref
from collections.abc import Sequence
from types import ModuleType
from typing import Final, NamedTuple

import numpy as np

from p4reduce.protocol.state import NextFrame, Received, Words
from p4reduce_runtime import datagrams
from p4reduce_runtime.datagrams import Destination, PollFd, SocketState
from p4reduce_runtime.records import Matrix, Table, zeros

_RING_BYTES: Final = 4 * datagrams.RECEIVE_BYTES
_BURST: Final = 1024
"""Datagrams that are taken in at once."""


class Sockets(NamedTuple):
    """A connected UDP socket for each switch, and memory for what they receive and send."""

    io: Table[SocketState]
    to: Table[Destination]
    readable: Table[PollFd]
    writable: Table[PollFd]
    """The descriptors with which to wait until a socket is readable, or writable."""
    own: Table[NextFrame]
    """[frames]: of the slots whose frames are sent, those of one switch."""
    vector: Matrix[np.int64]
    """[2, frames]: the address and the length of each frame that is sent."""
    ring: Words
    received: Table[Received]


class Channel:
    """A connected UDP socket for each switch, for one thread at a time.

    They have descriptors of their own, made from the given ones: closing those must not leave the kernels, which may
    be at work on another thread, with a number that is by then another file's. `pump`: the kernel module of that name.
    """

    def __init__(self, pump: ModuleType, descriptors: Sequence[int], *, plain: bool) -> None:
        """`plain`: whether every frame is sent by itself. Runs are short."""
        self.pump = pump
        own: list[int] = []
        self._finalizer = weakref.finalize(self, _close_all, own)
        self._finalizer.atexit = False  # at exit the last collective still needs it
        for descriptor in descriptors:
            own.append(os.dup(descriptor))  # one by one: if one fails, the others are closed
        self._to = np.repeat(datagrams.destination(plain=plain, run_bytes=datagrams.SHORT_RUN_BYTES), len(own))
        self.sockets = Sockets(
            io=datagrams.socket_state(*own),
            to=self._to,
            readable=datagrams.polled(own),
            writable=datagrams.polled(own, datagrams.WRITABLE),
            own=zeros(NextFrame, 0),
            vector=np.empty((2, 0), np.int64),
            ring=np.empty(_RING_BYTES // 4, np.uint32),
            received=zeros(Received, _BURST),
        )

    def close(self) -> None:
        """Close the descriptors; only when no collective runs over it. A garbage-collected channel closes them too."""
        self._finalizer()

    def send_runs(self, switch: int, run_bytes: int) -> None:
        """Send frames of equal length to a switch in runs of up to `run_bytes`; 0: each by itself.

        The kernels go over to the latter where the system refuses runs.
        """
        self._to["plain"][switch], self._to["run_bytes"][switch] = not run_bytes, run_bytes

    @property
    def sends_runs(self) -> bool:
        """Whether frames are sent in runs, to every switch."""
        return not self._to["plain"].any()

    def make_room(self, frames: int) -> None:
        """See to it that so many frames can be sent at once."""
        if self.sockets.vector.shape[1] < frames:
            room = {"vector": np.empty((2, frames), np.int64), "own": zeros(NextFrame, frames)}
            self.sockets = self.sockets._replace(**room)


def load_pump() -> ModuleType | None:
    """Return the loop over a socket, compiled if need be; None where there is none."""
    return importlib.import_module("p4reduce.protocol.pump") if datagrams.supported() else None


def make_channel(descriptors: Sequence[int], *, plain: bool) -> Channel | None:
    """Return what lets a collective use connected UDP sockets by itself; None where kernels are not compiled."""
    pump = load_pump()
    return None if pump is None else Channel(pump, descriptors, plain=plain)


def _close_all(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
