"""Medians, spreads and ratios of repeated measurements, and measuring several things in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

Argument = TypeVar("Argument")


def median(values: Sequence[float]) -> float:
    """Return the middle value. Raises ValueError when there is none."""
    if not values:
        raise ValueError("nothing was measured")
    return statistics.median(values)


def ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """Return the median of `above` over the median of `below`. Raises ValueError when that is no number."""
    divisor = median(below)
    if divisor <= 0:
        raise ValueError(f"a ratio to a median of {divisor:g}")
    return median(above) / divisor


def in_turn(
    peers: Mapping[str, Callable[[], float]], repetitions: int, limit_s: float = float("inf"), at_least: int = 1
) -> dict[str, list[float]]:
    """Measure each peer once, then each again, `repetitions` times; what is noisy is noisy for all.

    After `limit_s` no further turn is begun, once there are `at_least`. Returns by name what each call returned.
    """
    found: dict[str, list[float]] = {name: [] for name in peers}
    began = time.monotonic()
    for turn in range(repetitions):
        if turn >= at_least and time.monotonic() - began > limit_s:
            break
        for name, measure in peers.items():
            found[name].append(measure())
    return found


def least_cpu_seconds(work: Callable[[Argument], object], prepare: Callable[[], Argument], turns: int) -> float:
    """Return the least CPU seconds of this thread over some turns of `work(prepare())`; `prepare` is not counted."""
    times = []
    for _ in range(turns):
        argument = prepare()
        began = time.thread_time()
        work(argument)
        times.append(time.thread_time() - began)
    return min(times)
