"""The frames that come: which are for this rank, what they add to the sums, and which slots go on. Kernels.

What is rare is left to `collective.py`: the events that `receive` returns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from p4reduce.protocol.floats import decode
from p4reduce.protocol.lookahead import next_key
from p4reduce.protocol.prefetch import prefetch
from p4reduce.protocol.recovery import on_result
from p4reduce.protocol.state import (
    COLUMN_DONE,
    COMPARE_CALLS,
    CORRUPT_RESULT,
    END,
    HOLD_BACK,
    IGNORED,
    REFUSED,
    SPLIT_ROUNDS,
    Config,
    Engine,
    NextFrame,
    Received,
    Slot,
    State,
    Words,
)
from p4reduce.protocol.words import part_of, swap
from p4reduce.stats import CollectiveStats
from p4reduce_contracts.wire.numbers import (
    CHECK_WORD,
    CHECKSUM_SHIFT,
    CONTRIBUTE,
    EPOCH_SHIFT,
    GUARD_WORD,
    JOB_SHIFT,
    KEY_BLOCK_SHIFT,
    KEY_NONE,
    KEYS_WORD,
    PENDING,
    PRESENT_SHIFT,
    ROUND_MASK,
    ROUND_WORD,
    SECRET_WORD,
    SEEN_WORD,
    SLOT_MASK,
    SLOT_WORD,
    TYPE_MASK,
    TYPE_SHIFT,
    TYPE_WORD,
    VERSION_SHIFT,
    WIRE_VERSION,
)
from p4reduce_contracts.wire.side_by_side import slot_of
from p4reduce_runtime.kernels import kernel
from p4reduce_runtime.records import Matrix, ReadOnly, Table

MOST_WAYS = 4
"""Slots into which one splits at most: it may have few blocks left."""

job_slot = kernel()(slot_of)


@kernel(separate=True)
def classify(  # noqa: PLR0917
    config: Config,
    state: State,
    stats: CollectiveStats,
    secrets: Matrix[np.uint32],
    data: ReadOnly[np.uint32],
    received: Table[Received],
) -> None:
    """Set the type of each frame of the burst; those that are none, or not for this rank, are counted."""
    header = config.header_words
    for i in range(state.received):
        datagram = received[i]
        datagram.type = IGNORED
        length = datagram.length
        if length < 4 * header or length & 3:
            stats.malformed += 1
            continue
        frame = data[datagram.start : datagram.start + header]
        first: Any = np.int64(swap(frame[TYPE_WORD]))
        second = swap(frame[SLOT_WORD])
        guard = np.int64(swap(frame[GUARD_WORD]))
        kind, present = (first >> TYPE_SHIFT) & TYPE_MASK, (first >> PRESENT_SHIFT) & 255
        columns = np.int64(0)
        total = first + second + swap(frame[ROUND_WORD]) + swap(frame[SEEN_WORD]) + swap(frame[CHECK_WORD])
        for column in range(header - KEYS_WORD):
            columns += (present >> column) & 1
            total += swap(frame[KEYS_WORD + column])
        total %= 0xFFFF
        if (
            first >> VERSION_SHIFT != WIRE_VERSION
            or kind < CONTRIBUTE
            or kind > PENDING
            or first & 255 > config.depth
            or guard & ((1 << CHECKSUM_SHIFT) - 1)
            or present >> (header - KEYS_WORD)
            or length != 4 * (header + columns * config.block_words)
            or guard >> CHECKSUM_SHIFT != 0xFFFF - (total if total else 0xFFFF)
        ):
            stats.malformed += 1
        elif (
            (first >> JOB_SHIFT) & 255 != config.job
            or second >> EPOCH_SHIFT != config.epoch
            or swap(frame[SECRET_WORD]) != secrets[datagram.switch, 0]
            or swap(frame[SECRET_WORD + 1]) != secrets[datagram.switch, 1]
            or kind == CONTRIBUTE
        ):
            stats.foreign += 1
        else:
            datagram.type = kind


@kernel()
def plausible(config: Config, slot: Slot, keys: ReadOnly[np.uint32], index: int, n_blocks: int) -> bool:
    """Return whether the keys of a RESULT are no later than this rank's own and stay in their column."""
    for column in range(config.columns):
        key = np.int64(swap(keys[column]))
        if key > slot.keys[column]:
            return False
        if key != KEY_NONE:
            block, last = key >> KEY_BLOCK_SHIFT, slot.last_blocks[column]
            if block <= last or block >= n_blocks or key & 255 == 0:
                return False  # exponent 255 stands for Inf and NaN: no rank sends it
            if last >= 0 and block - last == slot.stride:  # the usual one, without a division
                continue
            if block % slot.stride != index * config.columns + column:
                return False
    return True


@kernel(separate=True)
def common_window(config: Config, calls: ReadOnly[np.uint32]) -> int:
    """Return the smallest window that a rank proposes; -1 if the calls are not all as this rank's (protocol/call.py).

    `calls`: the words of slot 0's opening RESULT. What differs, and what a refusal says, is Python's to see (-1 too),
    and so are the calls of ranks that share places.
    """
    if config.opening_words[1] >> 28 == REFUSED or config.shared:
        return -1
    window: Any = np.int64(0xFFFF)
    for rank in range(config.ranks):
        for i in range(4):
            word: Any = np.int64(swap(calls[4 * rank + i]))
            shift = 16 if i == 1 else 0
            if word >> shift != config.opening_words[i] >> shift:
                return -1
            if i == 1:
                window = min(window, word & 0xFFFF)
    smallest: int = max(1, window)
    return smallest


@kernel()
def note_progress(state: State, stats: CollectiveStats) -> None:
    """Store how many frames were refused when an answer of use came."""
    state.foreign_at_progress = stats.foreign
    state.malformed_at_progress = stats.malformed
    state.stale_at_progress = stats.stale


@kernel(separate=True)
def split(  # noqa: PLR0917
    columns: int,
    state: State,
    slots: Table[Slot],
    contributions: Table[NextFrame],
    mine: Words,
    index: int,
    n_blocks: int,
) -> None:
    """Share out the blocks of a slot that it has not agreed on: to itself and further slots, which open now.

    What it does follows from the RESULTs of this slot alone, so every rank does the same.
    """
    slot = slots[index]
    latest: Any = np.int64(0)
    for column in range(columns):
        if (slot.expected >> column) & 1:
            latest = max(latest, slot.blocks[column])
    ways = min(MOST_WAYS, len(slots) * columns // slot.stride, (n_blocks - 1 - latest) // slot.stride)
    if ways < 2:
        return
    apart, stride = slot.stride // columns, slot.stride * ways
    for way in range(ways):
        other = slots[index + way * apart]
        other.stride = stride
        other.agreed = columns * (SPLIT_ROUNDS - 1)  # a tensor with so many blocks goes on soon
        for column in range(columns):
            if not (slot.expected >> column) & 1:  # no rank has a further block there
                other.keys[column] = KEY_NONE
                continue
            first = (index + way * apart) * columns + column
            before = slot.blocks[column] - (slot.blocks[column] - first) % stride
            other.last_blocks[column] = max(before, -1)
            other.keys[column] = next_key(mine, before + stride, stride, n_blocks)
        if way:
            other.done = False
            contribution = contributions[state.contributions]
            contribution.slot = index + way * apart
            contribution.own = 0
            contribution.zeros = 0
            state.contributions += 1
            state.slots += 1
            state.open_slots += 1


@kernel(separate=True)
def receive(engine: Engine, data: ReadOnly[np.uint32], received: Table[Received], now: float) -> int:
    """Take in the burst from `next_received` on: store sums, and put the slots that go on into `contributions`.

    Returns END, or what Python has to handle: COMPARE_CALLS, the descriptors in the RESULT of slot 0's opening round,
    which are not all alike (set `calls_compared`, and `refused` if so, and call again); HOLD_BACK, the frame before
    `next_received` has to wait for that one; CORRUPT_RESULT, its check word is wrong, or one of its words larger than
    the ranks' can add up to.
    """
    config, state, stats = engine.config[0], engine.state[0], engine.stats[0]
    slots, parts, sums, weights, mine = engine.slots, engine.parts, engine.sums, engine.frame_weights, engine.keys
    if state.next_received == 0 and not state.calls_compared:
        classify(config, state, stats, engine.secrets, data, received)
    columns, size = config.columns, np.uint64(config.block_words)  # unsigned: an index that needs no look at its sign
    header = np.uint64(config.header_words)
    while state.next_received < state.received:
        place = state.next_received
        state.next_received = place + 1
        datagram = received[place]
        if datagram.type == IGNORED:
            continue
        frame = data[datagram.start : datagram.start + (datagram.length >> 2)]
        keys = frame[KEYS_WORD:]
        loss, path = engine.loss[datagram.switch], engine.path[datagram.switch]
        number: Any = np.int64(swap(frame[SLOT_WORD])) & SLOT_MASK
        index = job_slot(datagram.switch, number, config.switches, config.together)
        if index >= len(slots):
            stats.stale += 1
            continue
        slot = slots[index]
        if slot.frame_bytes == 0 or swap(frame[ROUND_WORD]) != slot.round_number:  # done, or it answers no frame
            stats.stale += 1
            continue
        if datagram.type == PENDING:
            stats.pendings += 1
            seen: Any = swap(frame[SEEN_WORD])
            slot.seen = seen
            level: Any = np.int64(swap(frame[TYPE_WORD])) & 255
            slot.seen_level = level
            note_progress(state, stats)
            continue
        first = np.int64(swap(frame[TYPE_WORD]))
        present = (first >> PRESENT_SHIFT) & 255
        if present != slot.expected or swap(frame[SEEN_WORD]) != config.full or first & 255 != config.depth:
            stats.malformed += 1
            continue
        opening = slot.opening
        check = np.uint32(0)
        beyond = False
        start = header
        together = columns if len(parts) == 1 and present == (1 << columns) - 1 else 1
        words = np.uint64(together) * size
        for column in range(0, columns, together):  # all blocks in one loop, where one limit holds for all
            if (present >> column) & 1:
                largest: Any = np.int64(1) << 31
                if not opening:
                    largest = parts[part_of(parts, slot.blocks[column])].largest_sum
                above, low = np.uint32(0), np.uint32(largest)
                base = np.uint64(column) * size
                for j in range(words):
                    word = swap(frame[start + j])
                    check = np.uint32(check + word * weights[base + j])
                    above = max(above, np.uint32(word + low))  # how far above -largest
                if np.int64(above) > 2 * largest:
                    beyond = True
                start += words
        if check != swap(frame[CHECK_WORD]) or beyond:
            stats.corrupt += 1
            return CORRUPT_RESULT
        if opening and index == 0:
            if not state.calls_compared:  # first: between different calls the keys make no sense
                window = common_window(config, frame[config.header_words :])
                if window < 0:
                    state.next_received = place
                    return COMPARE_CALLS
                state.next_window = window
            state.calls_compared = False
        fits = plausible(config, slot, keys, index, len(engine.agreed))
        if opening and slots[0].opening and index and fits or state.refused:
            on_result(loss, path, slots, index, now)
            if index and slots[0].opening:
                return HOLD_BACK
            stats.rounds += 1
            slot.round_number = (slot.round_number + 1) & ROUND_MASK
            slot.opening = False
            slot.done = True
            slot.frame_bytes = 0
            state.open_slots -= 1
            continue
        if not fits:
            stats.malformed += 1
            continue
        on_result(loss, path, slots, index, now)
        if not opening and slot.retransmits > 0 and slot.seen < 0:
            stats.losses += 1
        start = header
        expected, own, missing = 0, 0, 0
        adjacent = opening and config.eager
        for column in range(columns):
            bit = 1 << column
            if not opening and present & bit:
                block, exponent = slot.blocks[column], slot.exponents[column]
                engine.agreed[block] = exponent
                stats.blocks_down += 1
                part = part_of(parts, block)
                decode(parts[part], frame, start, size, engine.units[part, exponent], block, engine.spare, sums)
                start += size
            key: Any = np.int64(swap(keys[column]))
            if key == KEY_NONE:
                adjacent = False
                slot.keys[column] = key
                slot.last_blocks[column] = COLUMN_DONE
            else:
                block, last = key >> KEY_BLOCK_SHIFT, slot.last_blocks[column]
                adjacent = adjacent and block == (last + slot.stride if last >= 0 else index * columns + column)
                slot.last_blocks[column] = block
                slot.blocks[column] = block
                slot.exponents[column] = 255 - (key & 255)
                if slot.stride == config.stride:
                    slot.keys[column] = mine[block + slot.stride]
                else:
                    slot.keys[column] = next_key(mine, block + slot.stride, slot.stride, len(engine.agreed))
                slot.agreed += 1
                if config.sparse:
                    prefetch(mine, (slot.keys[column] >> KEY_BLOCK_SHIFT) + config.stride, 1)  # for the next RESULT
                expected |= bit
                if np.int64(mine[block] >> np.uint32(KEY_BLOCK_SHIFT)) == block:
                    own |= bit
                    state.needed = max(state.needed, block + 1)
                else:
                    missing += 1
        stats.rounds += 1
        note_progress(state, stats)
        state.longest_result = max(state.longest_result, datagram.length)
        slot.round_number = (slot.round_number + 1) & ROUND_MASK
        slot.opening = False
        slot.frame_bytes = 0
        if expected == 0:
            slot.done = True
            state.open_slots -= 1
            continue
        slot.expected = expected
        if adjacent:  # as of a dense tensor
            slot.agreed = columns * SPLIT_ROUNDS + 1
        zeros = 0
        for column in range(columns):
            if missing > config.growth_blocks and ((expected & ~own) >> column) & 1:
                zeros |= 1 << column
                missing -= 1
        contribution = engine.contributions[state.contributions]
        contribution.slot = index
        contribution.own = own
        contribution.zeros = zeros
        state.contributions += 1
        if slot.agreed > columns * SPLIT_ROUNDS and 2 * slot.stride <= len(slots) * columns:
            split(columns, state, slots, engine.contributions, mine, index, len(engine.agreed))
    if state.open_slots == 0:
        for index in range(len(slots)):
            engine.rounds[index] = slots[index].round_number
    return END
