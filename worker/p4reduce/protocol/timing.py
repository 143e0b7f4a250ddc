"""The times of loss detection (recovery.py), and how it counts."""

from __future__ import annotations

from typing import Final

INITIAL_RTO_S: Final = 0.1
"""The retransmission timeout before the first sample."""
GRANULARITY_S: Final = 0.001
MIN_PTO_S: Final = 0.005
MAX_PTO_S: Final = 1.0
MAX_LOSS_DELAY_S: Final = 1.0
"""However often a frame was sent again, one that later frames passed is sent again after so long."""
FAST_RETRANSMITS: Final = 2
"""So often a frame is sent again before the time between two retransmissions doubles."""
MAX_DEVIATION: Final = 2
"""A sample counts as at most so many variations above the smoothed time."""
