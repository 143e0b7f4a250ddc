"""Many frames in one native call: the interface between a compiled program and the loop that feeds it.

A compiled program is a C function `int64_t run_batch(struct Batch *batch)`. It runs frames from `frames_run` on, and
returns why it stopped. Results are whole frames in the order in which they leave.
"""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from p4reduce_runtime.records import Record


class Frame(Record):
    """A frame in a buffer."""

    offset: int
    """Bytes in the buffer before the frame."""
    length: int
    """Bytes."""
    port: int
    """The port where it arrived, or where it leaves."""


class Batch(Record):
    """The argument of `run_batch`. Only the function changes the last three fields while it runs."""

    program: int
    """Address of the program's state; `NativeBatch.new` sets it, the caller all others."""
    frames: int
    """Number of frames that arrived."""
    in_bytes: int
    """Address of their bytes."""
    in_frames: int
    """Address of Frame[frames]."""
    now_us: int
    """Microseconds since the program started, for timestamps and meters."""
    out_bytes: int
    """Address of the buffer for results."""
    out_size: int
    """Bytes of that buffer."""
    out_frames: int
    """Address of Frame[out_capacity]."""
    out_capacity: int
    frames_run: int
    """Frames of the batch that were run; the caller sets 0 to begin."""
    frames_out: int
    """Results written; the caller sets 0 when they are sent."""
    bytes_out: int
    """Bytes of the results; the caller sets 0 when they are sent."""


DONE: Final = 0
"""All frames are run."""
FULL: Final = 1
"""The results of the next frame may exceed the buffers; nothing of it was run. Send the results, and call again."""
EVENT: Final = 2
"""The last frame run left digests or a failure: call the program's `collect`, and call again."""


class NativeBatch(Protocol):
    """A program's native function."""

    @property
    def address(self) -> int:
        """Address of the C function."""

    @property
    def max_bytes(self) -> int:
        """The maximum number of bytes of one frame's results; replication entries may change it."""

    @property
    def copies(self) -> int:
        """The maximum number of results of one frame; replication entries may change it."""

    def new(self) -> NDArray[np.void]:
        """Return one Batch with `program` set, all others 0."""
