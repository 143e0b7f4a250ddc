"""The records of collectives before their first frame, kept for the next ones alike."""

from __future__ import annotations

import functools
from array import array
from collections import OrderedDict
from collections.abc import Hashable
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p4reduce.protocol.blocks import Array
from p4reduce.protocol.call import Call
from p4reduce.protocol.opening import places_of, shared_words
from p4reduce.protocol.rtt import RoundTrip
from p4reduce.protocol.state import COLUMN_DONE, MOST_LANES, Config, Loss, NextFrame, Slot, State
from p4reduce.stats import CollectiveStats
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire.check import COLUMN_FACTOR, weight, weights
from p4reduce_contracts.wire.numbers import MAX_GROWTH_BYTES
from p4reduce_contracts.wire.side_by_side import place_of
from p4reduce_runtime.records import zeros
from p4reduce_runtime.underlay import ENCAP_BYTES

_WORD: Final = 0xFFFFFFFF
_ONE_COLLECTIVE: Final = CollectiveStats(collectives=1).counts


def first_rounds(lease: Lease) -> array[int]:
    """Return the round in which each slot of a lease begins its next collective."""
    return array("q", [lease.first_round]) * lease.slot_count


class Records:
    """The records that collectives of equally many blocks and slots use, one after the other; no data is in them.

    `rounds`: those of `first_rounds`, which a collective advances when it is done. `window` is how many slots may be
    used, equal on all ranks whatever they call: all are opened when a rank refuses. `slots` of them are opened at
    first, all by default. `eager`, equal on all ranks: a slot splits at once if its first keys are of adjacent blocks.
    """

    def __init__(
        self,
        lease: Lease,
        blocks: int,
        rounds: array[int] | None = None,
        round_trip: RoundTrip | None = None,
        *,
        window: int | None = None,
        slots: int | None = None,
        eager: bool = False,
    ) -> None:
        import p4reduce.protocol.kernels as compiled

        self.kernels: ModuleType = compiled
        self.lease, self.stats = lease, CollectiveStats()
        self.rounds = np.frombuffer(first_rounds(lease) if rounds is None else rounds, np.int64)
        self.window = min(window or lease.slot_count, lease.slot_count)
        most = max(1, min(self.window, -(-blocks // lease.columns)))
        opened = min(slots or most, most)
        self.stride = stride = lease.columns * opened
        self.config = _config_of(lease, stride, eager)
        self._words: NDArray[np.int64] = self.config["opening_words"][0]
        self._shares_places, self._counts = bool(self.config["shared"][0]), self.stats.counts
        self.collective: Any = None
        """The last collective with these records, where a later one of the same blocks can have it."""
        self.call: Call | None = None
        """The call of the collectives, as the first one was; `agreement`: that of its Contribution."""
        self.agreement = ""
        first, frames = _new_tables(lease, most, opened, self.window)
        self._first = np.concatenate([table.view(np.uint64) for table in first])
        self._memory = self._first.copy()
        parts = np.split(self._memory, np.cumsum([table.nbytes // 8 for table in first]))
        tables = [part.view(table.dtype) for part, table in zip(parts, first, strict=False)]
        state, self.loss, self.slots, contributions = tables
        self.state: np.void = state[0]
        arrays = (
            self.config,
            state,
            self.stats.table,
            self.loss,
            (RoundTrip(len(lease.switches)) if round_trip is None else round_trip).table,
            np.array([divmod(switch.secret, 1 << 32) for switch in lease.switches], np.uint32),
            self.rounds,
            self.slots,
            contributions,
            _weights(lease.block_words, lease.columns),
            weights((1 << lease.columns) - 1, lease.block_words),
            np.empty((-(-blocks // stride) + 1) * stride, np.uint32),
            frames,
            np.empty((MOST_LANES + 1) * lease.block_words, np.float32),
        )
        self.size = self._first.nbytes + sum(table.nbytes for table in arrays)
        self.arrays: tuple[Any, ...] = tuple(arrays)
        """The fields of an Engine that serve all collectives alike, in its order."""

    def describe(self, call: Call, agreement: str = "") -> None:
        """Set the call that the collectives are: of those alike only their number, and a proposed window, differ."""
        self.call, self.agreement, self._descriptor = call, agreement, call.words(0)
        self._words[:4] = self._descriptor

    def begin(self, number: int, proposal: int, max_pto: float) -> None:
        """Put all back for collective `number`, in which this rank proposes a window."""
        self._memory[:] = self._first
        self.loss["max_pto"] = max_pto
        self._counts[:] = _ONE_COLLECTIVE
        _, shape, *others = self._descriptor
        self._words[0], self._words[1] = number & _WORD, shape | proposal
        if self._shares_places:
            words = number & _WORD, shape | proposal, *others
            self.config["opening_places"][0], self._words[:] = shared_words(self.lease, words)


class KeptRecords:
    """The records of a lease's collectives: of those that were called last, as far as they take little memory."""

    MOST: Final = 64
    MOST_BYTES: Final = 32 << 20

    def __init__(self, lease: Lease, rounds: array[int], round_trip: RoundTrip) -> None:
        self._place = lease, rounds, round_trip
        self._kept: OrderedDict[Hashable, Records] = OrderedDict()
        self._size = 0

    def find(self, alike: Hashable, blocks: int, *, window: int, slots: int, eager: bool) -> Records:
        """Return the records of collectives alike; new ones if they are not kept."""
        found = self._kept.get(key := (alike, blocks, window, slots, eager))
        if found is not None:
            self._kept.move_to_end(key)
            return found
        lease, rounds, round_trip = self._place
        found = Records(lease, blocks, rounds, round_trip, window=window, slots=slots, eager=eager)
        self._kept[key] = found
        self._size += found.size
        while len(self._kept) > self.MOST or self._size > self.MOST_BYTES:
            self._size -= self._forget()
        return found

    def clear(self) -> None:
        """Forget all."""
        while self._kept:
            self._size -= self._forget()

    def _forget(self) -> int:
        """Forget the least recent ones; return their size."""
        _, records = self._kept.popitem(last=False)
        records.collective = None  # which refers to them
        return records.size


def _new_tables(lease: Lease, most: int, opened: int, window: int) -> tuple[list[Array], NDArray[np.uint32]]:
    """Return the state, loss detection, slots and due frames of a collective that has not begun, and memory for frames.

    `most` slots may be opened, and `opened` are at first.
    """
    state, loss, contributions = zeros(State), zeros(Loss, len(lease.switches)), zeros(NextFrame, most)
    places = places_of(lease)
    slots, frames = new_slots(lease, most, lease.columns * opened)
    slots["done"][opened:] = True
    slots["last_blocks"][opened:] = COLUMN_DONE
    slots["expected"][0] = places.columns
    contributions["slot"] = range(most)
    contributions["own"][0], contributions["zeros"][0] = places.own, places.zeros
    state["begins"] = True
    state["slots"] = state["open_slots"] = state["contributions"] = opened
    state["next_window"] = window
    loss["oldest"] = loss["newest"] = -1
    loss["timer_at"] = np.inf
    return [state, loss, slots, contributions], frames


def new_slots(lease: Lease, count: int, stride: int, first: int = 0) -> tuple[Array, NDArray[np.uint32]]:
    """Return slots from `first` on before their opening rounds, numbered so, and memory for the frame of each."""
    slots: Array = zeros(Slot, count)
    numbers = np.arange(first, first + count)
    slots["switch"], slots["number"] = place_of(numbers, len(lease.switches), lease.slots_together)
    slots["opening"], slots["stride"] = True, stride
    slots["seen"] = slots["last_blocks"] = -1
    return slots, np.zeros((count, lease.geometry.max_frame_bytes // 4), np.uint32)


def joined(record: type[Slot] | type[NextFrame], first: Array, second: Array) -> Array:
    """Return two tables as one; numpy.concatenate leaves the bytes between fields undefined."""
    table: Array = zeros(record, len(first) + len(second))
    table[: len(first)], table[len(first) :] = first, second
    return table


def _config_of(lease: Lease, stride: int, eager: bool) -> Array:
    """Return a Config without a call."""
    geometry, places = lease.geometry, places_of(lease)
    header_words, growth_blocks = geometry.frame_header_bytes // 4, MAX_GROWTH_BYTES // geometry.block_bytes
    table: Array = zeros(Config)
    frame = (geometry.columns, geometry.block_words, header_words, growth_blocks, ENCAP_BYTES)
    job = (lease.job_id, lease.epoch, len(lease.switches), lease.slots_together)
    ranks = (lease.world_size, lease.depth, lease.full)
    alike = (stride, eager, False)
    opening = (places.shared, places.own, places.zeros, places.own_places, 0)
    table[0] = frame + job + ranks + alike + opening
    return table


@functools.cache
def _weights(block_words: int, columns: int) -> NDArray[np.uint32]:
    """Return the check word's weights of a block's words, and then its columns'."""
    words = [weight(0, word) for word in range(block_words)]
    return np.array(words + [pow(COLUMN_FACTOR, column, 1 << 32) for column in range(columns)], np.uint32)
