"""Election ids, (high, low) with 64 bits each, that are larger than others'."""

from __future__ import annotations

import time
from typing import Final

ElectionId = tuple[int, int]

LARGEST: Final = ((1 << 64) - 1, (1 << 64) - 1)


def first() -> ElectionId:
    """Return an id to begin with: the time, so that a restarted controller exceeds its own earlier id."""
    return 0, time.time_ns()


def above(taken: ElectionId) -> ElectionId:
    """Return the next larger id. After the largest it is that one again: it can follow itself once it has left."""
    if taken >= LARGEST:
        return LARGEST
    number = (taken[0] << 64 | taken[1]) + 1
    return number >> 64, number & (1 << 64) - 1
