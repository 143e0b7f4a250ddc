"""How long rounds take on this path: RFC 6298's estimate, and two numbers more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

INITIAL_S: Final = 0.1
GRANULARITY_S: Final = 0.001


class RoundTrip:
    """What is known of the path; one estimate for all the slots of a communicator, which share it.

    A sample is the time from sending a frame to its RESULT, which waits for the slowest rank. Rounds that say more of
    a loss than of the path must not be samples, or every recovery would make the next one slower: those that were sent
    more than once (Karn's rule), and those whose RESULT came after one of a later frame (recovery.py). What is left of
    them, where a collective's last frames wait for another rank's patience, counts as a mild surprise: a sample is
    taken for at most SURPRISE variations above the smoothed time. A path that becomes slower is followed all the same,
    since the variation then grows by a quarter with every sample.
    """

    SURPRISE: Final = 2

    def __init__(self) -> None:
        self._smoothed_s: float | None = None
        self._variation_s = 0.0
        self.fastest_s = 0.0
        """No RESULT came sooner after its frame."""
        self.gap_s = 0.0
        """How long after one RESULT the next one comes, smoothed."""

    @property
    def timeout_s(self) -> float:
        """How long a round takes at most, by all that is known."""
        if self._smoothed_s is None:
            return INITIAL_S
        return self._smoothed_s + max(GRANULARITY_S, 4 * self._variation_s)

    @property
    def smoothed_s(self) -> float:
        """The smoothed time to an answer; 0 before the first sample."""
        return self._smoothed_s or 0.0

    @property
    def numbers(self) -> tuple[float, float, float, float]:
        """All that is known: the smoothed time (NaN before the first sample), its variation, `fastest_s`, `gap_s`."""
        smoothed_s = math.nan if self._smoothed_s is None else self._smoothed_s
        return smoothed_s, self._variation_s, self.fastest_s, self.gap_s

    @numbers.setter
    def numbers(self, numbers: Sequence[float]) -> None:
        smoothed_s, self._variation_s, self.fastest_s, self.gap_s = numbers
        self._smoothed_s = None if math.isnan(smoothed_s) else smoothed_s

    def sample(self, seconds: float, gap_s: float) -> None:
        """Learn from a round that took `seconds`, and whose RESULT came `gap_s` after the one before."""
        if self._smoothed_s is None:
            self._smoothed_s, self._variation_s = seconds, seconds / 2
            self.fastest_s, self.gap_s = seconds, gap_s
            return
        self.fastest_s = min(self.fastest_s, seconds)
        surprise_s = min(seconds - self._smoothed_s, self.SURPRISE * max(self._variation_s, GRANULARITY_S))
        self._variation_s += (abs(surprise_s) - self._variation_s) / 4
        self._smoothed_s += surprise_s / 8
        self.gap_s += (gap_s - self.gap_s) / 8
