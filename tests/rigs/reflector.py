"""A program that sends every frame back by its ingress port, for tests of the loop around a program."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from p4reduce_runtime.datagrams import ENCAP_BYTES
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
        self.tables: dict[str, Any] = {}
        self.counters: dict[str, Any] = {}
        self.registers: dict[str, Any] = {}
        self.meters: dict[str, Any] = {}
        self.replication = Replication()

    @property
    def batch(self) -> Reflector:
        """Itself."""
        return self

    def new(self) -> NDArray[np.int64]:
        """Return a batch's words."""
        return np.zeros(batch.WORDS, np.int64)

    def collect(self) -> None:
        """Nothing happens in it that could be collected."""

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Send one frame back."""
        if len(frame) < ENCAP_BYTES:
            return []
        swapped = frame[6:12] + frame[:6] + frame[12:26] + frame[30:34] + frame[26:30] + frame[36:38] + frame[34:36]
        return [(port, swapped + frame[38:])]


def reflect(words: Any) -> Any:
    """Send every frame back: `words` is the address of the batch's words."""
    frames, capacity = load_word(words + 8 * batch.FRAMES), load_word(words + 8 * batch.OUT_CAPACITY)
    while load_word(words + 8 * batch.FRAMES_RUN) < frames:
        index, row = load_word(words + 8 * batch.FRAMES_RUN), load_word(words + 8 * batch.FRAMES_OUT)
        at = load_word(words + 8 * batch.BYTES_OUT)
        length = load_word(load_word(words + 8 * batch.IN_LENGTHS) + 8 * index)
        if row == capacity or at + length > load_word(words + 8 * batch.OUT_SIZE):
            return batch.FULL
        store_word(words + 8 * batch.FRAMES_RUN, index + 1)
        if length < ENCAP_BYTES:
            continue
        frame = load_word(words + 8 * batch.IN_BYTES) + load_word(load_word(words + 8 * batch.IN_OFFSETS) + 8 * index)
        result = load_word(words + 8 * batch.OUT_BYTES) + at
        copy_bytes(result, frame + 6, 6)
        copy_bytes(result + 6, frame, 6)
        copy_bytes(result + 12, frame + 12, length - 12)
        copy_bytes(result + 26, frame + 30, 4)
        copy_bytes(result + 30, frame + 26, 4)
        copy_bytes(result + 34, frame + 36, 2)
        copy_bytes(result + 36, frame + 34, 2)
        store_word(load_word(words + 8 * batch.OUT_OFFSETS) + 8 * row, at)
        store_word(load_word(words + 8 * batch.OUT_LENGTHS) + 8 * row, length)
        store_word(
            load_word(words + 8 * batch.OUT_PORTS) + 8 * row,
            load_word(load_word(words + 8 * batch.IN_PORTS) + 8 * index),
        )
        store_word(words + 8 * batch.FRAMES_OUT, row + 1)
        store_word(words + 8 * batch.BYTES_OUT, at + length)
    return batch.DONE
