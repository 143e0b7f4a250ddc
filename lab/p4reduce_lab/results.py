"""Numbers out of the results of a comparison: values by variant, ratios."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from p4reduce_lab.training import Result

FLOAT_BYTES = 4


def ring_bytes(results: list[Result]) -> float:
    """Return the bytes a worker and step of a ring all-reduce of the dense gradient: 2(N-1)/N · 4 · D, no headers."""
    workers, parameters = results[0]["world_size"], results[0]["parameters"]
    return float(2 * (workers - 1) / workers * FLOAT_BYTES * parameters)


def of(results: list[Result], name: str) -> list[Result]:
    """Return the results of one variant."""
    return [result for result in results if result["name"] == name]


def values(results: Iterable[Result], key: str) -> list[float]:
    """Return one number of each result; nothing when one of them has none."""
    found = [result[key] for result in results]
    return [] if None in found else [float(value) for value in found]


def ratio(results: list[Result], ring: float) -> float | None:
    """Return how many times fewer bytes, up and down together, than the ring's formula; None when not measured."""
    up, down = values(results, "up_bytes_per_step"), values(results, "down_bytes_per_step")
    return 2 * ring / (statistics.mean(up) + statistics.mean(down)) if up and down else None
