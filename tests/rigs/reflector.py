"""A program that sends every frame back by its ingress port, for tests of the loop around a program."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from p4reduce_runtime.datagrams import ENCAP_BYTES
from p4reduce_runtime.records import dtype_of, offset_of, zeros
from p4reduce_switch.datapath.addresses import copy_bytes, load_word, store_word
from p4reduce_switch.program import batch
from p4reduce_switch.program.state.replication import Replication


class Reflector:
    """A program with a native batch: it swaps the addresses of a frame. Checksums stay right.

    Compiles when it is made.
    """

    room = 1 << 17
    copies = 1

    def __init__(self) -> None:
        compiled: Any = numba.cfunc("int64(int64)")(reflect)
        self._compiled = compiled
        self.address: int = compiled.address
        self.on_digest: Any = None
        self.action_profiles: dict[str, Any] = {}
        self.queues = None
        self.tables: dict[str, Any] = {}
        self.counters: dict[str, Any] = {}
        self.registers: dict[str, Any] = {}
        self.meters: dict[str, Any] = {}
        self.replication = Replication()

    @property
    def batch(self) -> Reflector:
        """Itself."""
        return self

    def new(self) -> NDArray[np.void]:
        """Return a Batch."""
        made: NDArray[np.void] = zeros(batch.Batch)
        return made

    def collect(self) -> None:
        """Nothing happens in it that could be collected."""

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Send one frame back."""
        if len(frame) < ENCAP_BYTES:
            return []
        swapped = frame[6:12] + frame[:6] + frame[12:26] + frame[30:34] + frame[26:30] + frame[36:38] + frame[34:36]
        return [(port, swapped + frame[38:])]


_FIELDS = {name: offset_of(batch.Batch, name) for name in dtype_of(batch.Batch).names or ()}
FRAMES, FRAMES_RUN, FRAMES_OUT = _FIELDS["frames"], _FIELDS["frames_run"], _FIELDS["frames_out"]
IN_BYTES, IN_FRAMES, OUT_BYTES, OUT_FRAMES = (
    _FIELDS[name] for name in ("in_bytes", "in_frames", "out_bytes", "out_frames")
)
OUT_SIZE, OUT_CAPACITY, BYTES_OUT = _FIELDS["out_size"], _FIELDS["out_capacity"], _FIELDS["bytes_out"]
FRAME_SIZE = dtype_of(batch.Frame).itemsize
LENGTH, PORT = offset_of(batch.Frame, "length"), offset_of(batch.Frame, "port")


def reflect(of: Any) -> Any:
    """Send every frame back: `of` is the address of the Batch."""
    frames, capacity = load_word(of + FRAMES), load_word(of + OUT_CAPACITY)
    while load_word(of + FRAMES_RUN) < frames:
        index, row, at = load_word(of + FRAMES_RUN), load_word(of + FRAMES_OUT), load_word(of + BYTES_OUT)
        source = load_word(of + IN_FRAMES) + FRAME_SIZE * index
        length = load_word(source + LENGTH)
        if row == capacity or at + length > load_word(of + OUT_SIZE):
            return batch.FULL
        store_word(of + FRAMES_RUN, index + 1)
        if length < ENCAP_BYTES:
            continue
        frame = load_word(of + IN_BYTES) + load_word(source)
        result = load_word(of + OUT_BYTES) + at
        copy_bytes(result, frame + 6, 6)
        copy_bytes(result + 6, frame, 6)
        copy_bytes(result + 12, frame + 12, length - 12)
        copy_bytes(result + 26, frame + 30, 4)
        copy_bytes(result + 30, frame + 26, 4)
        copy_bytes(result + 34, frame + 36, 2)
        copy_bytes(result + 36, frame + 34, 2)
        sent = load_word(of + OUT_FRAMES) + FRAME_SIZE * row
        store_word(sent, at)
        store_word(sent + LENGTH, length)
        store_word(sent + PORT, load_word(source + PORT))
        store_word(of + FRAMES_OUT, row + 1)
        store_word(of + BYTES_OUT, at + length)
    return batch.DONE
