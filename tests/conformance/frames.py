"""Seeded random frames for the small programs."""

from __future__ import annotations

import random
from collections.abc import Iterable

from conformance.case import Arrive, Step

EDGES = (0, 0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 127, 128, 129, 254, 255, 255)


def noise(seed: str, count: int, *lengths: int, ports: Iterable[int] = (1,)) -> list[Step]:
    """`count` frames of one of these lengths, bytes at random with a liking for the edges of their range."""
    source = random.Random(seed)
    choices = list(ports)
    return [Arrive(_one_of(source, choices), some_bytes(source, _one_of(source, lengths))) for _ in range(count)]


def some_bytes(source: random.Random, length: int) -> bytes:
    return bytes(
        EDGES[source.randrange(len(EDGES))] if source.random() < 0.5 else source.randrange(256) for _ in range(length)
    )


def counted(*columns: Iterable[int], tail: bytes = b"tail", port: int = 1) -> list[Step]:
    """A frame for each combination of one value a column; a column is one byte."""
    rows = [b""]
    for column in columns:
        values = list(column)
        rows = [row + bytes((value,)) for row in rows for value in values]
    return [Arrive(port, row + tail) for row in rows]


def hexes(*frames: str, port: int = 1) -> list[Step]:
    """Hand-written frames."""
    return [Arrive(port, bytes.fromhex(frame)) for frame in frames]


def _one_of(source: random.Random, values: Iterable[int]) -> int:
    found = list(values)
    return found[source.randrange(len(found))]
