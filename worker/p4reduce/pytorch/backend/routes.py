"""Which way large broadcasts go: over the switch or over gloo, whichever is faster in the first calls.

Between ranks of one machine gloo is several times faster; where the network is what limits both, the switch can be.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

import numpy as np

from p4reduce.communicator import Communicator

TRIALS: Final = 2
"""Calls of each way that are timed; the faster one counts, as the first has more to set up."""
T = TypeVar("T")


class Routes:
    """One for each process group and rank; all ranks make the same calls in the same order."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._seconds: dict[int, list[float]] = {}
        """Seconds of the first calls, by the bits of their size: gloo, switch, gloo, switch."""
        self._switch_is_faster: dict[int, bool] = {}

    def run(
        self, comm: Communicator, size: int, over_switch: Callable[[], T], over_gloo: Callable[[], T], timeout_s: float
    ) -> T:
        """Run one of the two, the same one on all ranks, and return its result; `size` is in bytes."""
        key = size.bit_length()
        if (switch_is_faster := self._switch_is_faster.get(key)) is not None:
            return over_switch() if switch_is_faster else over_gloo()
        seconds = self._seconds.setdefault(key, [])
        comm.barrier(timeout_s=timeout_s)  # or a late rank's delay would count
        began_s = self._clock()
        result = (over_switch if len(seconds) % 2 else over_gloo)()
        seconds.append(self._clock() - began_s)
        if len(seconds) == 2 * TRIALS:
            mine = np.array([min(seconds[0::2]), min(seconds[1::2])])
            gloo_s, switch_s = comm.all_gather(mine, timeout_s=timeout_s).max(axis=0)
            self._switch_is_faster[key] = bool(switch_s < gloo_s)
        return result
