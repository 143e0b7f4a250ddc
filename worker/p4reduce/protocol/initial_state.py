"""The state of a collective before its first frame."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from p4reduce.protocol.blocks import Array, Blocks, Layout
from p4reduce.protocol.opening import places_of, shared_words
from p4reduce.protocol.state import (
    COLUMN_DONE,
    MOST_LANES,
    UNTOUCHED,
    Config,
    Engine,
    Loss,
    NextFrame,
    Slot,
    State,
    Stats,
)
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire.check import COLUMN_FACTOR, weight, weights
from p4reduce_contracts.wire.numbers import MAX_GROWTH_BYTES
from p4reduce_contracts.wire.side_by_side import place_of
from p4reduce_runtime.records import dtype_of, zeros
from p4reduce_runtime.underlay import ENCAP_BYTES

FEW_SUMS: Final = 1 << 16
"""Words for sums whose memory is made before the opening frames leave: they wait for more."""


def new_engine(
    lease: Lease,
    blocks: Blocks,
    layout: Layout,
    slot_rounds: Sequence[int],
    call_words: Sequence[int],
    opened: int,
    most: int,
    path: Array,
    look_ahead: Callable[..., int],
) -> Engine:
    """Return the records of a collective. Memory for more than a few `sums` is not in it.

    `slot_rounds`: the first round of each slot of the lease. `call_words`: this rank's call descriptor. `opened`,
    `most`: how many slots are opened at first, and may be. `path`: the records of a RoundTrip. `look_ahead`: the kernel
    of lookahead.py.
    """
    stride = lease.columns * opened
    keys = np.empty((-(-blocks.n_blocks // stride) + 1) * stride, np.uint32)
    dense = look_ahead(blocks.nonzero, blocks.exponents, stride, keys) == blocks.n_blocks
    slots, frames = new_slots(lease, slot_rounds[:most], stride)
    slots["done"][opened:] = True
    slots["last_blocks"][opened:] = COLUMN_DONE
    slots["expected"][0] = places_of(lease).columns
    slots["keys"][:opened, : lease.columns] = keys[:stride].reshape(opened, lease.columns)
    agreed = np.empty(blocks.n_blocks, np.uint8)
    agreed.fill(UNTOUCHED)
    state: Array = zeros(State)
    state[0]["slots"] = state[0]["open_slots"] = opened
    state[0]["published"] = 0 if len(blocks.published) else blocks.n_blocks
    loss: Array = zeros(Loss, len(lease.switches))
    loss["oldest"] = loss["newest"] = -1
    loss["timer_at"] = np.inf
    return Engine(
        config=_new_config(lease, call_words, stride, dense=dense),
        state=state,
        stats=zeros(Stats),
        loss=loss,
        path=path,
        secrets=np.array([divmod(switch.secret, 1 << 32) for switch in lease.switches], np.uint32),
        slots=slots,
        parts=layout.table,
        contributions=zeros(NextFrame, most),
        scales=layout.scales,
        units=layout.units,
        weights=_weights(lease.block_words, lease.columns),
        frame_weights=weights((1 << lease.columns) - 1, lease.block_words),
        keys=keys,
        elements=layout.elements,
        holders=blocks.holders,
        published=blocks.published,
        begins=blocks.begins,
        sums=layout.make_room(dense) if layout.sums_words <= FEW_SUMS else np.zeros(0, np.uint32),
        agreed=agreed,
        frames=frames,
        spare=np.empty((MOST_LANES + 1) * lease.block_words, np.float32),
    )


def new_slots(lease: Lease, rounds: Sequence[int], stride: int, first: int = 0) -> tuple[Array, NDArray[np.uint32]]:
    """Return slots from `first` on before their opening rounds, numbered so, and memory for the frame of each."""
    content = _unopened(first, len(rounds), len(lease.switches), lease.slots_together)
    slots: Array = np.frombuffer(bytearray(content), dtype_of(Slot))
    slots["round_number"], slots["stride"] = rounds, stride
    return slots, np.zeros((len(rounds), lease.geometry.max_frame_bytes // 4), np.uint32)


@functools.lru_cache(8)
def _unopened(first: int, count: int, switches: int, together: int) -> bytes:
    """Return the memory of new slots: a copy of an array leaves the bytes between fields undefined."""
    slots: Array = zeros(Slot, count)
    slots["switch"], slots["number"] = place_of(np.arange(first, first + count), switches, together)
    slots["opening"] = True
    slots["seen"] = -1
    slots["last_blocks"] = -1
    return slots.tobytes()


def joined(record: type[Slot] | type[NextFrame], first: Array, second: Array) -> Array:
    """Return two tables as one; numpy.concatenate leaves the bytes between fields undefined."""
    table: Array = zeros(record, len(first) + len(second))
    table[: len(first)], table[len(first) :] = first, second
    return table


def _new_config(lease: Lease, call_words: Sequence[int], stride: int, *, dense: bool) -> Array:
    table: Array = np.frombuffer(bytearray(_config_of(lease, stride, dense)), dtype_of(Config))
    if table["shared"][0]:
        table["opening_places"][0], table["opening_words"][0] = shared_words(lease, call_words)
    else:
        table["opening_words"][0, : len(call_words)] = call_words
    return table


@functools.lru_cache(64)
def _config_of(lease: Lease, stride: int, dense: bool) -> bytes:
    """Return the memory of a Config without the call."""
    geometry, places = lease.geometry, places_of(lease)
    header_words, growth_blocks = geometry.frame_header_bytes // 4, MAX_GROWTH_BYTES // geometry.block_bytes
    table: Array = zeros(Config)
    frame = (geometry.columns, geometry.block_words, header_words, growth_blocks, ENCAP_BYTES)
    job = (lease.job_id, lease.epoch, len(lease.switches), lease.slots_together)
    ranks = (lease.world_size, lease.depth, lease.full)
    opening = (stride, not dense, places.shared, places.own, places.zeros, places.own_places, 0)
    table[0] = frame + job + ranks + opening
    return table.tobytes()


@functools.cache
def _weights(block_words: int, columns: int) -> NDArray[np.uint32]:
    """Return the check word's weights of a block's words, and then its columns'."""
    words = [weight(0, word) for word in range(block_words)]
    return np.array(words + [pow(COLUMN_FACTOR, column, 1 << 32) for column in range(columns)], np.uint32)
