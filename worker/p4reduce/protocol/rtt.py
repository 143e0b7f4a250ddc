"""How long rounds take on this path: RFC 6298's estimate."""

from __future__ import annotations

import math

from p4reduce.protocol.state import Path
from p4reduce_runtime.records import zeros


class RoundTrip:
    """What is known of the path to each switch; one estimate for all its slots, which share it.

    A sample is the time from sending a frame to its RESULT, which waits for the slowest rank. Rounds that say more of
    a loss than of the path must not be samples, or every recovery would make the next one slower: those that were sent
    more than once (Karn's rule), and those whose RESULT came after one of a later frame (recovery.py). What is left of
    them, where a collective's last frames wait for another rank's probe timeout, counts as a mild deviation: a sample
    is taken for at most MAX_DEVIATION variations above the smoothed time. A path that becomes slower is followed all
    the same, since the variation then grows by a quarter with every sample.
    """

    def __init__(self, switches: int = 1) -> None:
        self.table = zeros(Path, switches)
        """A record for each switch, which the kernels of running collectives read and write."""
        self.table["smoothed_rtt"] = math.nan

    @property
    def timeout_s(self) -> float:
        """The maximum duration of a round by all measurements: the longest retransmission timeout, in seconds."""
        from p4reduce.protocol.recovery import retransmission_timeout

        return max(float(retransmission_timeout(path)) for path in self.table)

    @property
    def smoothed_s(self) -> float:
        """The smoothed time to an answer of the slowest switch; 0 before the first sample."""
        paths: list[float] = self.table["smoothed_rtt"].tolist()
        return max(path for path in (0.0, *paths) if not math.isnan(path))

    @property
    def queued(self) -> bool:
        """Whether frames wait in queues, or for late ranks, for longer than they travel, as TCP Vegas compares it."""
        return bool((self.table["smoothed_rtt"] > 2 * self.table["min_rtt"]).any())
