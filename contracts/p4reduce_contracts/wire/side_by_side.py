"""Which slot of a job is which slot of which of its switches side by side (docs/protocol.md).

Plain arithmetic: for numbers, for arrays, and for kernels.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:  # the controller starts without numpy
    import numpy as np
    from numpy.typing import NDArray

MOST_TOGETHER: Final = 4
"""Slots in a row at one switch, where its number of slots is a multiple: a collective of so few uses one switch."""

Numbers = TypeVar("Numbers", int, "NDArray[np.int64]")


def slots_together(switches: int, slots: int) -> int:
    """Return how many slots in a row are at one of the switches, of which each has `slots` of the job: a power of 2."""
    return gcd(MOST_TOGETHER, slots) if switches > 1 else 1


def place_of(slot: Numbers, switches: int, together: int) -> tuple[Numbers, Numbers]:
    """Return the switch that has a slot of the job, and the slot's number there."""
    row = slot // together
    return row % switches, row // switches * together + slot % together


def slot_of(switch: int, number: int, switches: int, together: int) -> int:
    """Return which slot of the job is this one of a switch: the inverse of `place_of`, without a division."""
    return number + (number & -together) * (switches - 1) + switch * together
