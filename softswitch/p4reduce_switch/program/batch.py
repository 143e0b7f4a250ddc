"""Many frames in one native call: how a loop that knows nothing of programs hands them to a program.

A compiled program is a C function `int64_t run_batch(int64_t *batch)`. The batch is an array of words:

| word | what | who writes it |
| --- | --- | --- |
| STATE | address of the program's state | `NativeBatch.new` |
| FRAMES | how many frames arrived | the caller, like all that follow, up to OUT_CAPACITY |
| IN_BYTES | address of the bytes of the frames | |
| IN_OFFSETS | address of int64[FRAMES]: where each frame starts in IN_BYTES | |
| IN_LENGTHS | address of int64[FRAMES]: bytes of each | |
| IN_PORTS | address of int64[FRAMES]: the port where each arrived | |
| NOW_US | microseconds since the program started, for timestamps and meters | |
| OUT_BYTES | address where frames to send are written | |
| OUT_SIZE | bytes there | |
| OUT_OFFSETS | address of int64[OUT_CAPACITY]: where each result starts in OUT_BYTES | |
| OUT_LENGTHS | address of int64[OUT_CAPACITY]: bytes of each | |
| OUT_PORTS | address of int64[OUT_CAPACITY]: the port where each leaves | |
| OUT_CAPACITY | results that fit in these three arrays | |
| FRAMES_RUN | frames of the batch that were run | both: 0 to begin, the function goes on from there |
| FRAMES_OUT | results written | both: 0 when what was written is sent |
| BYTES_OUT | bytes of OUT_BYTES in use | both, likewise |

Results are whole frames in the order in which they leave. The function returns why it stopped.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

STATE = 0
FRAMES = 1
IN_BYTES = 2
IN_OFFSETS = 3
IN_LENGTHS = 4
IN_PORTS = 5
NOW_US = 6
OUT_BYTES = 7
OUT_SIZE = 8
OUT_OFFSETS = 9
OUT_LENGTHS = 10
OUT_PORTS = 11
OUT_CAPACITY = 12
FRAMES_RUN = 13
FRAMES_OUT = 14
BYTES_OUT = 15
WORDS = 16

DONE = 0
"""All frames are run."""
FULL = 1
"""There is no room for what the next frame may cause at most; nothing of that frame was run. Send, and go on."""
EVENT = 2
"""The frame just run (it counts as FRAMES_RUN) left digests or a failure: call the program's `collect`, and go on."""


class NativeBatch(Protocol):
    """A program's native function."""

    @property
    def address(self) -> int:
        """Where the C function is."""

    @property
    def room(self) -> int:
        """Bytes of OUT_BYTES that one frame may need at most; replication entries may change it."""

    @property
    def copies(self) -> int:
        """Results that one frame may cause at most; replication entries may change it."""

    def new(self) -> NDArray[np.int64]:
        """A batch of WORDS words with STATE set, all others 0."""
