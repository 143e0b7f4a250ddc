"""The times of loss detection (recovery.py), and how it counts."""

from __future__ import annotations

from typing import Final

INITIAL_RTO_S: Final = 0.1
"""The retransmission timeout before the first sample."""
GRANULARITY_S: Final = 0.001
MIN_PTO_S: Final = 0.005
MAX_PTO_S: Final = 1.0
MAX_LOSS_DELAY_S: Final = 1.0
"""Seconds after which a frame that later frames passed is sent again, however often it was sent before."""
FAST_RETRANSMITS: Final = 2
"""Retransmissions of a frame before the time between two of them doubles."""
MAX_DEVIATION: Final = 2
"""Number of variations above the smoothed time that a sample counts at most."""
