"""Switch ports: a UDP underlay, which needs no root, or Linux interfaces."""

from __future__ import annotations

import enum
import importlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from p4reduce_runtime import datagrams, kernels
from p4reduce_switch.datapath import BatchProgram, Buffers, Reason

Receiver = Callable[[int, bytes], None]
"""A function that is called with (port, frame)."""


class PortError(Exception):
    """A port cannot be opened; the message says what to do."""


class Gso(enum.IntEnum):
    """Whether the native loop uses generic segmentation offload: equally long datagrams sent as one super-frame."""

    OFF = 0
    AUTO = 1
    """GSO on an interface once it has received a super-frame, so that its peer can segment them; on UDP always."""
    ON = 2


class DatapathLoop:
    """The native loop of a set of ports, for one thread, which holds the switch's lock during `run_once`."""

    def __init__(self, module: str, polled: NDArray[np.void], *state: object) -> None:
        """The kernels `run_once` and `send_results` of `module` get `state`; `polled` has a last row for `wake_by`."""
        self.buffers, self._outgoing = Buffers(), Buffers()
        self._compiled, self._polled, self._state = load_loop(module), polled, state

    def wake_by(self, descriptor: int) -> None:
        """Return from `run_once` when this descriptor is readable."""
        self._polled["fd"][-1] = descriptor

    def run_once(self, lock: NDArray[np.void]) -> Reason:
        """Run the loop until Python is needed, or the lock, given by its LockState, has waiters."""
        return Reason(self._compiled.run_once(self.buffers.memory, *self._state, lock))

    helpers: Sequence[DatapathLoop] = ()
    """Loops for further threads, which run frames while this loop's thread does or waits."""

    def help_once(self, lock: NDArray[np.void], helper: int) -> Reason:
        """Run this loop as a helper, whose row of `lock` this is, until Python is needed."""
        return Reason(self._compiled.help_once(self.buffers.memory, *self._state, lock, helper))

    def share(self, program: BatchProgram | None, installed_us: int) -> None:
        """Let the helpers run frames of this program as far as it allows; the others are for Python."""

    def send(self, frames: Sequence[tuple[int, bytes]]) -> bool:
        """Send frames; False if one found no room, and frames are to wait for it."""
        while frames:
            count = self._outgoing.set_results(frames)
            self._compiled.send_results(self._outgoing.memory, *self._state)
            frames = frames[count:]
        return True

    def admit_pending(self) -> None:
        """After UNKNOWN_PEER: make the sender of the pending datagram a peer, or drop the datagram."""


class Ports(Protocol):
    """A set of switch ports behind one or more sockets. Its methods are called with the switch's lock held."""

    full: set[int]
    """The ports whose queues are not to be served at present: too many frames wait for room in their sockets."""

    @property
    def recorder(self) -> Receiver | None:
        """To be called with each frame that arrives; then all frames pass Python. None: nothing is recorded."""

    def datapath_loop(self, wake: int) -> DatapathLoop:
        """Return the native loop, which returns when the descriptor `wake` is readable.

        The first time on a machine it is compiled, which takes seconds. PortError where it cannot be.
        """

    def send(self, port: int, frame: bytes) -> bool:
        """Send a frame out of `port`, with the next `flush`; False if the port is not one of these."""

    def flush(self) -> None:
        """Send the frames given to `send`, and those that wait for room, as far as there is room. Does not block."""

    def wait_when_full(self, wait: bool) -> None:
        """Choose what happens to a frame for which a socket has no room: it waits, or it is lost, the default."""

    def close(self) -> None:
        """Close the sockets."""


def load_loop(module: str) -> ModuleType:
    """Import the kernels of a native loop; PortError where they cannot be compiled."""
    if not datagrams.supported():
        raise PortError("the switch sends and receives in compiled code, which takes 64-bit Linux")
    try:
        loaded: ModuleType = importlib.import_module(module)
    except kernels.CompilationError as error:
        raise PortError(str(error)) from error
    return loaded


__all__ = ["DatapathLoop", "Gso", "PortError", "Ports", "Receiver", "load_loop"]
