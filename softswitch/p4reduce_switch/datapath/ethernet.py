"""The state of interfaces that the native loop and Python share: a row of words for each."""

from __future__ import annotations

from typing import Final

# words of an interface
DESCRIPTOR: Final = 0
PORT: Final = 1
GSO_ALLOWED: Final = 2
"""0: no GSO; 1: GSO once a super-frame was received; 2: always."""
GSO_SEEN: Final = 3
MAX_FRAME: Final = 4
"""Bytes of the longest frame that the interface accepts."""
# and its counters: see InterfaceCounters
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
