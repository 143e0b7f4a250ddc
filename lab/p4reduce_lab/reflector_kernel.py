"""The compiled half of the reflector."""

from __future__ import annotations

from typing import Any

from p4reduce_runtime.datagrams import ENCAP_BYTES
from p4reduce_switch.program import batch as words
from p4reduce_switch.pump.addresses import copy_bytes, load_word, store_word


def reflect(batch: Any) -> Any:
    """Send every frame back: `batch` is the address of the words."""
    frames, capacity = load_word(batch + 8 * words.FRAMES), load_word(batch + 8 * words.OUT_CAPACITY)
    while load_word(batch + 8 * words.TAKEN) < frames:
        index, row = load_word(batch + 8 * words.TAKEN), load_word(batch + 8 * words.FRAMES_OUT)
        at = load_word(batch + 8 * words.BYTES_OUT)
        length = load_word(load_word(batch + 8 * words.IN_LENGTHS) + 8 * index)
        if row == capacity or at + length > load_word(batch + 8 * words.OUT_SIZE):
            return words.FULL
        store_word(batch + 8 * words.TAKEN, index + 1)
        if length < ENCAP_BYTES:
            continue
        frame = load_word(batch + 8 * words.IN_BYTES) + load_word(load_word(batch + 8 * words.IN_OFFSETS) + 8 * index)
        result = load_word(batch + 8 * words.OUT_BYTES) + at
        copy_bytes(result, frame + 6, 6)
        copy_bytes(result + 6, frame, 6)
        copy_bytes(result + 12, frame + 12, length - 12)
        copy_bytes(result + 26, frame + 30, 4)
        copy_bytes(result + 30, frame + 26, 4)
        copy_bytes(result + 34, frame + 36, 2)
        copy_bytes(result + 36, frame + 34, 2)
        store_word(load_word(batch + 8 * words.OUT_OFFSETS) + 8 * row, at)
        store_word(load_word(batch + 8 * words.OUT_LENGTHS) + 8 * row, length)
        store_word(
            load_word(batch + 8 * words.OUT_PORTS) + 8 * row,
            load_word(load_word(batch + 8 * words.IN_PORTS) + 8 * index),
        )
        store_word(batch + 8 * words.FRAMES_OUT, row + 1)
        store_word(batch + 8 * words.BYTES_OUT, at + length)
    return words.DONE
