"""A communicator of rank 0 alone, over the reference switch, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from p4reduce import Communicator
from p4reduce.testing.reference_switch import ReferenceSwitch
from p4reduce_contracts.jobs.lease import Lease, LeasedSwitch, Level
from p4reduce_contracts.wire.geometry import SMALL

SLOTS = 4


class Path:
    """A transport to the reference switch whose `receive` lets virtual time pass instead of waiting.

    `answers(now)`: whether an answer of the switch arrives, and after how many seconds.
    """

    def __init__(self, rank: int, switch: ReferenceSwitch, answers: Callable[[float], float | None]) -> None:
        self.now = 0.0
        self._rank, self._switch, self._answers = rank, switch, answers
        self._arriving: list[tuple[float, bytes]] = []

    def clock(self) -> float:
        return self.now

    def send(self, frames: Iterable[bytes]) -> None:
        for frame in frames:
            for to, answer in self._switch.process(self._rank, frame):
                if to == self._rank and (after_s := self._answers(self.now)) is not None:
                    self._arriving.append((self.now + after_s, answer))

    def receive(self, timeout_s: float) -> list[bytes]:
        self.now += timeout_s
        arrived = [answer for at, answer in self._arriving if at <= self.now]
        self._arriving = [(at, answer) for at, answer in self._arriving if at > self.now]
        return arrived

    def close(self) -> None:
        pass


def rank_0(
    world_size: int, answers: Callable[[float], float | None] = lambda now: 0.0, levels: tuple[Level, ...] = ()
) -> tuple[Communicator, Path]:
    """The communicator of rank 0, with the default timeout; no other rank takes part in anything."""
    switch = ReferenceSwitch(SMALL, SLOTS)
    switch.add_job(1, 7, world_size, 0, SLOTS)
    path = Path(0, switch, answers)
    shape = SMALL.columns, SMALL.block_words
    lease = Lease(1, "train", 7, 0, world_size, SLOTS, *shape, switches=(LeasedSwitch("10.0.0.7", levels=levels),))
    return Communicator(lease, path, clock=path.clock), path
