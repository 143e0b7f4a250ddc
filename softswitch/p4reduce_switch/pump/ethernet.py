"""What the loop over interfaces and Python both know: one row of words for each interface."""

from __future__ import annotations

from typing import Final

# words of an interface
DESCRIPTOR: Final = 0
PORT: Final = 1
RUNS_ALLOWED: Final = 2
"""0: every frame goes by itself; 1: runs go as one once a run has come; 2: always."""
RUNS_SEEN: Final = 3
MAX_FRAME: Final = 4
"""Bytes of the longest frame that the interface takes."""
# and what it counts: see InterfaceCounters
COUNTERS: Final = ("frames_in", "bytes_in", "frames_out", "bytes_out", "send_errors")
FRAMES_IN, BYTES_IN, FRAMES_OUT, BYTES_OUT, SEND_ERRORS = range(8, 8 + len(COUNTERS))
INTERFACE_WORDS: Final = 8 + len(COUNTERS)

MAX_SEGMENTS: Final = 64
# words of the memory for system calls; `datagrams.kernels.microseconds` uses 17 and 18
MESSAGE: Final = 0
NAME: Final = 7
VIRTIO: Final = 10
HEADERS: Final = 20
VECTOR: Final = 26
SCRATCH_WORDS: Final = VECTOR + 2 * (MAX_SEGMENTS + 2)
