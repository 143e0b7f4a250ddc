"""The engine's state as a value: copied, compared and restored in one call."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p4reduce.errors import Reason
from p4reduce.protocol.blocks import Array, Layout
from p4reduce.protocol.collective import Collective
from p4reduce.protocol.state import UNTOUCHED, NextFrame
from p4reduce_runtime.records import zeros

_COPIED: Final = ("state", "stats", "loss", "path", "slots", "agreed", "frames")
"""The arrays of a snapshot, before the sums."""


class Snapshot(NamedTuple):
    """A collective's whole state, but for what it was made with. Equal ones go on in the same way; hashable."""

    arrays: tuple[bytes, ...]
    slot_rounds: tuple[int, ...]
    deadline: float
    refusals: tuple[tuple[int, Reason], ...]
    early: tuple[tuple[int, bytes], ...]
    corrupt: tuple[tuple[int, bytes], ...]


class RestorableCollective(Collective):
    """A collective that can go back to an earlier state."""

    def snapshot(self) -> Snapshot:
        """Return a copy of the whole state, between two calls of the methods that take frames and times.

        Not while a channel is used: what it has received is not in it.
        """
        records = self.engine
        sums = records.sums.copy()
        if not np.may_share_memory(records.sums, records.elements):  # else what has no sum is this rank's data
            _clear_untouched(self._layout, sums, records.agreed)
        return Snapshot(
            (*(np.asarray(getattr(records, name)).tobytes() for name in _COPIED), sums.tobytes()),
            tuple(self.records.rounds.tolist()),
            self.deadline,
            tuple(self.refusals.items()),
            tuple(self._early.items()),
            tuple(self._corrupt.items()),
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a state that `snapshot` returned, of this collective or of one that was made alike."""
        replaced: dict[str, Array] = {}
        *copied, sums = snapshot.arrays
        for name, content in zip(_COPIED, copied, strict=True):
            array: Array = getattr(self.engine, name)
            restored = np.frombuffer(content, array.dtype).reshape(-1, *array.shape[1:])
            if len(restored) == len(array):
                array[...] = restored
            else:
                replaced[name] = np.frombuffer(bytearray(content), array.dtype).reshape(restored.shape)
        self._replace(**replaced, contributions=zeros(NextFrame, len(replaced.get("slots", self._slots))))
        if sums:
            if not self._has_room:
                self._make_room()
            self.engine.sums[:] = np.frombuffer(sums, np.uint32)
        self.records.rounds[:] = snapshot.slot_rounds
        self.deadline = snapshot.deadline
        self.refusals = dict(snapshot.refusals)
        self._early, self._corrupt, self._unsent = dict(snapshot.early), dict(snapshot.corrupt), []
        self._done = False


def _clear_untouched(layout: Layout, sums: NDArray[np.uint32], exponents: NDArray[np.uint8]) -> None:
    """Set the sums of blocks to zero that no rank held, in memory that `Layout.make_room` made."""
    begin = 0
    for row, end, words in zip(layout.table, layout.sums_ends, layout.words_per_block, strict=True):
        first, last = row["first_block"] + row["kept_begin"], row["first_block"] + row["kept_end"]
        own = sums[begin:end]
        own[np.repeat(exponents[first:last] == UNTOUCHED, words)[: len(own)]] = 0
        begin = end
