"""Ranks in one process whose job is reset at chosen answers of the switch, and a run for them to go through."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p4reduce import Communicator
from p4reduce.codecs import Floats
from p4reduce.errors import InvalidTensorError, PeerRefusedError
from p4reduce.testing.resettable_group import ResettableGroup
from p4reduce_contracts.wire.geometry import SMALL, Geometry


class CutGroup(ResettableGroup):
    """Resets its job instead of handing out certain answers, counted from the first; what is under way is lost."""

    def __init__(
        self, world_size: int, cuts: set[int], *, geometry: Geometry = SMALL, slots: int = 4, **options: Any
    ) -> None:
        slow = lambda: time.monotonic() / 1000  # noqa: E731 - so that a busy machine repeats no frame: the answers are counted
        super().__init__(world_size, geometry=geometry, slots=slots, clock=slow, **options)
        self.cuts = cuts
        self.answers = 0

    def deliver(self, rank: int, payload: bytes) -> None:
        with self._lock:
            for to, answer in self.switch.process(rank, payload):
                if self.is_cut():
                    self.reset()
                    return
                self.inboxes[to].put(answer)

    def is_cut(self) -> bool:
        """Count an answer; return whether the job is reset in its place."""
        cut = self.answers in self.cuts
        self.cuts.discard(self.answers)
        self.answers += 1
        return cut


def numbers(rank: int, step: int, size: int = 70) -> NDArray[np.float32]:
    return np.random.default_rng(100 * rank + step).normal(0, 10.0**step, size).astype(np.float32)


def run(comm: Communicator) -> list[Any]:
    """One collective of every kind; each sum is written over what it was made of, as the hook for gradients does."""
    found: list[Any] = []
    for step in range(2):
        mine = numbers(comm.rank, step)
        mine[...] = comm.all_reduce_segments([Floats(mine, mean=True)])[0]
        found.append(mine.copy())
    whole = np.arange(60, dtype=np.int32) * (comm.rank + 1)
    found.append(comm.all_reduce(whole))
    found.append(comm.broadcast(numbers(comm.rank, 3, 9), 1))
    comm.barrier()
    try:
        comm.all_reduce(np.array([np.nan if comm.rank == 1 else 1.0], np.float32))
    except (InvalidTensorError, PeerRefusedError) as error:
        found.append(type(error).__name__)
    found += [np.frombuffer(data, np.uint8) for data in comm.all_gather_bytes(bytes(range(10 * comm.rank)))]
    return found


def run_and_close(comm: Communicator) -> list[Any]:
    """`run`, and meet the others once more, as a rank that ends has to: one of them may lack the last result."""
    found = run(comm)
    comm.close()
    return found


def same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(
        a == b if isinstance(a, str) else a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True)
    )
