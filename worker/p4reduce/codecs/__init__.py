"""How tensors become blocks of 32-bit words that can be added, and sums become tensors again."""

from __future__ import annotations

from p4reduce.codecs.floats import Floats, Summed
from p4reduce.codecs.integers import Int32, Lanes
from p4reduce.codecs.raw import Gathered

Segment = Floats | Int32 | Lanes | Gathered
"""A tensor together with its codec: what all_reduce_segments takes."""
__all__ = ["Floats", "Gathered", "Int32", "Lanes", "Segment", "Summed"]
