"""Packets as records in memory, which Python reads and writes slot by slot."""

from __future__ import annotations

import ctypes

from p4reduce_switch.program.layout import Layout


class Shape:
    """The layout of a record for Python: for each slot of 8 bytes the number of its word, and whether it is signed."""

    def __init__(self, layout: Layout) -> None:
        self.kinds, self.offsets = layout.kinds, layout.offsets
        self.words = [
            (layout.offsets[slot] // 8, kind.signed) if kind.bytes_ == 8 and not kind.wide else None
            for slot, kind in enumerate(layout.kinds)
        ]
        self.memory = ctypes.c_char * max(8, layout.size)


class Record:
    """A packet: a record in memory and its payload; a new one is all 0."""

    __slots__ = ("_bytes", "_signed", "_unsigned", "memory", "payload", "shape")

    def __init__(self, shape: Shape, memory: ctypes.Array[ctypes.c_char] | None = None, payload: bytes = b"") -> None:
        self.shape = shape
        self.memory = shape.memory() if memory is None else memory
        self.payload = payload
        self._bytes = memoryview(self.memory).cast("B")
        self._signed, self._unsigned = self._bytes.cast("q"), self._bytes.cast("Q")

    def copy(self) -> Record:
        """Return a copy of the packet."""
        return Record(self.shape, self.shape.memory.from_buffer_copy(self.memory), self.payload)

    def __getitem__(self, slot: int) -> int:
        word = self.shape.words[slot]
        if word is not None:
            return (self._signed if word[1] else self._unsigned)[word[0]]
        kind, start = self.shape.kinds[slot], self.shape.offsets[slot]
        data = self._bytes[start : start + kind.bytes_]
        return int.from_bytes(data, "big" if kind.wide else "little", signed=kind.signed)

    def __setitem__(self, slot: int, value: int) -> None:
        word = self.shape.words[slot]
        if word is not None:
            (self._signed if word[1] else self._unsigned)[word[0]] = value
            return
        kind, start = self.shape.kinds[slot], self.shape.offsets[slot]
        data = value.to_bytes(kind.bytes_, "big" if kind.wide else "little", signed=kind.signed)
        self._bytes[start : start + kind.bytes_] = data
