"""Frames that wait for their interface, for programs with egress queues.

Where an interface is slower than the frames for it (`tc` limits it), BMv2's send waits once the socket's buffer is
full, its output buffer fills, and then the egress queue of the port: that is how programs see a queue. Here each port
has an output buffer of its own, so that a slow one does not hold up the others.
"""

from __future__ import annotations

import selectors
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from p4reduce_switch.ports import PortFullError, Ports

OUTPUT_FRAMES: Final = 130
"""simple_switch's output buffer has 128 frames; the thread that sends and the one that fills it hold one each."""


@dataclass(slots=True)
class _Waiting:
    ports: Ports
    port: int
    frames: deque[bytes] = field(default_factory=deque)


class OutputBuffers:
    """The output buffer of each port. Thread-safe."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        """`selector` has the descriptors of all ports; those with frames are also watched for room."""
        self.full: set[int] = set()
        """Ports whose buffers are full."""
        self._selector = selector
        self._lock = threading.Lock()
        self._by_port: dict[int, _Waiting] = {}
        self._by_fileno: dict[int, _Waiting] = {}

    def send(self, ports: Ports, port: int, frame: bytes) -> bool:
        """Send a frame, or keep it until its interface has room; False if the port is not one of `ports`."""
        with self._lock:
            waiting = self._by_port.get(port)
            if waiting is None:
                try:
                    return ports.send(port, frame)
                except PortFullError as full:
                    waiting = self._by_port[port] = self._by_fileno[full.fileno] = _Waiting(ports, port)
                    self._selector.modify(full.fileno, selectors.EVENT_READ | selectors.EVENT_WRITE, ports)
            waiting.frames.append(frame)
            if len(waiting.frames) >= OUTPUT_FRAMES:
                self.full.add(port)
            return True

    def flush(self, fileno: int) -> None:
        """Send what waits for this descriptor, as far as there is room.

        To be called when the selector reports it, also for an arrival, which wakes BMv2's sender too: without one it
        sleeps until half of the socket's buffer is free.
        """
        if fileno in self._by_fileno:
            with self._lock:
                self._flush(fileno)

    def flush_all(self) -> None:
        """Send what waits for any descriptor, as far as there is room."""
        with self._lock:
            for fileno in [*self._by_fileno]:
                self._flush(fileno)

    def _flush(self, fileno: int) -> None:
        waiting = self._by_fileno.get(fileno)
        if waiting is None:  # `flush_all` was first
            return
        try:
            while waiting.frames:
                waiting.ports.send(waiting.port, waiting.frames[0])
                waiting.frames.popleft()
        except PortFullError:
            pass
        else:
            del self._by_fileno[fileno], self._by_port[waiting.port]
            self._selector.modify(fileno, selectors.EVENT_READ, waiting.ports)
        if len(waiting.frames) < OUTPUT_FRAMES:
            self.full.discard(waiting.port)
