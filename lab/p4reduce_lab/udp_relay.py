"""A path to a switch over UDP on loopback, that loses, copies, delays and damages frames."""

from __future__ import annotations

import heapq
import random
import selectors
import socket
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import Any, Final

KEPT_FRAMES: Final = 2000
"""The last so many frames are kept, for the report of a failure."""
_FRAME_BYTES: Final = 65536
_BUFFER_BYTES: Final = 4 << 20
_AT_ONCE: Final = 64


@dataclass(frozen=True)
class PathConditions:
    """The faults of a path; the chances are independent."""

    drop: float = 0.0
    duplicate: float = 0.0
    late: float = 0.0
    """The chance to be held back, so that later frames arrive earlier."""
    late_s: float = 0.02
    """Seconds that a frame is held back at most."""
    flip: float = 0.0
    """The chance that one bit changes. UDP's checksum does not show it, as if a host or the switch had done it."""
    ways: tuple[str, ...] = ("up", "down")
    """The directions of the frames concerned: "up" to the switch, "down" from it. Other frames pass."""


class UdpRelay:
    """Forwards between any number of workers and switches at `address` and a switch, in a thread of its own."""

    def __init__(self, switch: tuple[str, int], conditions: PathConditions, seed: int) -> None:
        self.conditions = conditions
        self.counts: Counter[str] = Counter()
        self._switch, self._random = switch, random.Random(seed)
        self._front = _socket()
        self.address: tuple[str, int] = self._front.getsockname()
        self._backs: dict[tuple[str, int], socket.socket] = {}
        self._log: deque[tuple[float, str, int, str, bytes]] = deque(maxlen=KEPT_FRAMES)
        self._waiting: list[tuple[float, int, Any]] = []
        self._number = count()
        self._began, self._ended = time.monotonic(), False
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._front, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._run, name="udp relay")

    def log(self) -> list[str]:
        """Return the last frames: seconds since the start, direction, worker's port, what became of it, its bytes."""
        return [f"{at:.4f} {way} {port} {fate} {frame.hex()}" for at, way, port, fate, frame in list(self._log)]

    def _run(self) -> None:
        while not self._ended:
            wait = min(0.1, max(0.0, self._waiting[0][0] - time.monotonic())) if self._waiting else 0.1
            for key, _ in self._selector.select(wait):
                self._receive(key.fileobj, key.data)
            while self._waiting and self._waiting[0][0] <= time.monotonic():
                self._send(*heapq.heappop(self._waiting)[2])

    def _receive(self, at: Any, worker: tuple[str, int] | None) -> None:
        for _ in range(_AT_ONCE):
            try:
                frame, source = at.recvfrom(_FRAME_BYTES)
            except OSError:  # nothing more; or the port that an earlier frame went to is closed
                return
            if worker is None:
                self._pass_on("up", self._back_of(source), self._switch, source[1], frame)
            elif source == self._switch:
                self._pass_on("down", self._front, worker, worker[1], frame)

    def _back_of(self, worker: tuple[str, int]) -> socket.socket:
        """Return the socket that stands for a worker towards the switch."""
        if worker not in self._backs:
            self._backs[worker] = _socket()
            self._selector.register(self._backs[worker], selectors.EVENT_READ, worker)
        return self._backs[worker]

    def _pass_on(self, way: str, by: socket.socket, to: tuple[str, int], port: int, frame: bytes) -> None:
        drawn, conditions = self._random, self.conditions if way in self.conditions.ways else PathConditions()
        fates = []
        if drawn.random() < conditions.flip:
            bit = drawn.randrange(8 * len(frame))
            frame = frame[: bit // 8] + bytes((frame[bit // 8] ^ 1 << bit % 8,)) + frame[bit // 8 + 1 :]
            fates.append(f"flipped bit {bit}")
        copies = 1 if drawn.random() >= conditions.duplicate else 2
        if copies == 2:
            fates.append("duplicated")
        if drawn.random() < conditions.drop:
            copies -= 1
            fates.append("dropped")
        late = [drawn.random() < conditions.late for _ in range(copies)]
        fates += ["late"] * sum(late)
        self.counts[f"frames {way}"] += 1
        self.counts.update("flipped" if fate.startswith("flipped") else fate for fate in fates)
        self._log.append((time.monotonic() - self._began, way, port, ", ".join(fates) or "passed", frame))
        for held in late:  # after the log: what has arrived is in it
            if held:
                until = time.monotonic() + drawn.random() * conditions.late_s
                heapq.heappush(self._waiting, (until, next(self._number), (by, frame, to)))
            else:
                self._send(by, frame, to)

    def _send(self, by: socket.socket, frame: bytes, to: tuple[str, int]) -> None:
        try:
            by.sendto(frame, to)
        except OSError:  # the other end is closed just now, or a buffer is full
            self.counts["not sent"] += 1

    def __enter__(self) -> UdpRelay:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended = True
        self._thread.join()
        for each in (self._front, *self._backs.values()):
            each.close()
        self._selector.close()


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    made.setblocking(False)
    made.bind(("127.0.0.1", 0))
    return made
