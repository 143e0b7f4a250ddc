"""What wire="auto" stands for: 16 bits a number where that saves time by what was measured so far, else float32.

A sum of f frames is taken to need r + f · t seconds: r is the shortest round trip, t what a frame took in the largest
collectives so far, whether the link, the switch or a processor was the limit. 16 bits halve f.

Measurements differ from rank to rank, so all ranks use those of rank 0. It broadcasts them once, after MEASURED_SUMS
sums in float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from p4reduce.codecs.wire import FixedWire

MEASURED_SUMS: Final = 8
LEAST_SAVING: Final = 0.2
"""Of the time of a sum: less is not worth the precision."""


@dataclass(frozen=True)
class Speed:
    """What decides, in seconds."""

    round_s: float
    frame_s: float

    def seconds(self, frames: int) -> float:
        """Return how long a sum of so many frames is expected to take."""
        return self.round_s + frames * self.frame_s

    def wire_of(self, numbers: int, frame_words: int) -> FixedWire:
        """Return the format of a sum of so many float32 numbers; `frame_words`: how many a full frame holds."""
        whole, half = (self.seconds(-(-numbers // per_frame)) for per_frame in (frame_words, 2 * frame_words))
        return "16" if whole - half > 0 and whole - half >= LEAST_SAVING * whole else "float32"


class AutoWire:
    """One rank's measurements, and what the ranks have agreed on."""

    def __init__(self) -> None:
        self.sums = 0
        """Sums with wire="auto" so far, the same number on all ranks."""
        self.agreed: Speed | None = None
        """Rank 0's measurements, once they were broadcast."""
        self._most_rounds = 0
        self._frame_s = math.inf

    def saw(self, rounds: int, seconds: float, round_s: float) -> None:
        """Take note of a collective that is done: its frames, how long it took, and the shortest round trip."""
        if rounds > 2 * self._most_rounds:
            self._frame_s = math.inf  # of short ones the round trips are too large a part
        self._most_rounds = max(self._most_rounds, rounds)
        if rounds and 2 * rounds >= self._most_rounds:
            self._frame_s = min(self._frame_s, max(0.0, seconds - round_s) / rounds)

    def measured(self, round_s: float) -> Speed:
        """Return this rank's measurements."""
        return Speed(round_s, self._frame_s if math.isfinite(self._frame_s) else 0.0)
