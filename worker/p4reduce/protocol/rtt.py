"""Adaptive retransmission timeout (RFC 6298, with Karn's rule)."""

from __future__ import annotations

from typing import Final


class RoundTrip:
    """Estimates how long a contribution takes to be answered, and from it the timeout.

    One estimate serves all the slots of a communicator, since they share one path; each slot
    keeps its own timer and backs off alone. Only rounds sent once are sampled (Karn), and a
    backed-off timeout that turned out to be enough is kept until the next clean sample.
    """

    INITIAL_S: Final = 0.2
    MIN_S: Final = 0.01
    MAX_S: Final = 1.0
    GRANULARITY_S: Final = 0.001

    def __init__(self) -> None:
        self._smoothed: float | None = None
        self._variation = 0.0
        self._timeout_s = self.INITIAL_S
        self._retained_s = 0.0

    @property
    def timeout_s(self) -> float:
        """How long to wait for the answer to a frame sent now."""
        return max(self._timeout_s, self._retained_s)

    @property
    def smoothed_s(self) -> float:
        """The smoothed time to an answer; 0 before the first sample."""
        return self._smoothed or 0.0

    def sample(self, seconds: float) -> None:
        """Learn from a round that was sent exactly once."""
        if self._smoothed is None:
            self._smoothed, self._variation = seconds, seconds / 2
        else:
            self._variation += (abs(self._smoothed - seconds) - self._variation) / 4
            self._smoothed += (seconds - self._smoothed) / 8
        wanted = self._smoothed + max(self.GRANULARITY_S, 4 * self._variation)
        self._timeout_s = min(self.MAX_S, max(self.MIN_S, wanted))
        self._retained_s = 0.0

    def retain(self, timeout_s: float) -> None:
        """A retransmitted round was answered: keep its backed-off timeout until a clean sample."""
        self._retained_s = max(self._retained_s, timeout_s)

    def backed_off(self, timeout_s: float) -> float:
        """The timeout after one more silence."""
        return min(self.MAX_S, 2 * timeout_s)
