"""The frames that this rank sends: its blocks as words, check word, look-ahead keys. Kernels.

A RESULT may be at most MAX_GROWTH_BYTES longer than the frame that it answers: BMv2 gives each packet a buffer of its
length and 512 bytes more, and aborts when the program makes the packet longer. Any contribution may be the one that
completes its round and becomes the RESULT. The agreed keys determine which blocks the RESULT will carry, so
one that holds too few of them sends blocks of zeros for others (`zeros` of a NextFrame).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from p4reduce.protocol.fence import fence
from p4reduce.protocol.floats import encode, encode_held, first_word
from p4reduce.protocol.prefetch import prefetch
from p4reduce.protocol.recovery import on_frame_sent, restart_ptos, set_loss_detection_timers
from p4reduce.protocol.state import Config, Engine, NextFrame, PartLayout, Slot
from p4reduce.protocol.words import part_of, swap
from p4reduce_contracts.wire.numbers import (
    CHECK_WORD,
    CHECKSUM_SHIFT,
    CONTRIBUTE,
    EPOCH_SHIFT,
    GUARD_WORD,
    JOB_SHIFT,
    KEYS_WORD,
    PRESENT_SHIFT,
    ROUND_WORD,
    SECRET_WORD,
    SEEN_WORD,
    SLOT_WORD,
    TYPE_SHIFT,
    TYPE_WORD,
    VERSION_SHIFT,
    WIRE_VERSION,
)
from p4reduce_runtime.kernels import kernel
from p4reduce_runtime.records import ReadOnly, Table

AHEAD = 4
"""Number of frames before its own at which a block of a sparse tensor is fetched from memory."""


@kernel()
def fetch(
    config: Config, slots: Table[Slot], parts: Table[PartLayout], elements: ReadOnly[np.uint32], contribution: NextFrame
) -> None:
    """Have the blocks that a slot sends next fetched from memory."""
    slot = slots[contribution.slot]
    for column in range(config.columns):
        if (contribution.own >> column) & 1 and not slot.opening:
            block = slot.blocks[column]
            part = parts[part_of(parts, block)]
            words = config.block_words * max(1, part.lanes)
            begin = first_word(part, block, np.uint64(config.block_words))
            prefetch(elements, begin, words >> part.word_shift)


@kernel(separate=True)
def contribute(engine: Engine, now: float) -> None:
    """Make the frames of the slots in `contributions`, and wait for what answers them.

    They stay there if not all of the blocks are published; then nothing is made.
    """
    config, state, stats = engine.config[0], engine.state[0], engine.stats[0]
    if state.needed > state.published:
        least: Any = np.int64(engine.published[0])
        for i in range(1, len(engine.published)):
            least = min(least, np.int64(engine.published[i]))
        fence()
        state.published = least
        if state.needed > state.published:
            return
        restart_ptos(engine, now)  # while frames were held they ran out
    slots, parts, weights, elements = engine.slots, engine.parts, engine.weights, engine.elements
    contributions, count = engine.contributions, state.contributions
    columns, size = config.columns, np.uint64(config.block_words)
    for i in range(min(AHEAD, count) if config.sparse else 0):
        fetch(config, slots, parts, elements, contributions[i])
    for i in range(count):
        if config.sparse and i + AHEAD < count:
            fetch(config, slots, parts, elements, contributions[i + AHEAD])
        index, own = contributions[i].slot, contributions[i].own
        present = own | contributions[i].zeros
        slot, frame = slots[index], engine.frames[index]
        start = np.uint64(config.header_words)
        check = np.uint32(0)
        for column in range(columns):
            if not (present >> column) & 1:
                continue
            weighed = np.uint32(0)
            if (own >> column) & 1 and not slot.opening:
                stats.blocks_up += 1
                block = slot.blocks[column]
                number = part_of(parts, block)
                scale = engine.scales[number, slot.exponents[column]]
                part = parts[number]
                if part.input_words:
                    held, begins = engine.holders[block], engine.begins
                    weighed = encode_held(
                        part, elements, begins, held, block, scale, size, weights, engine.spare, frame, start
                    )
                else:
                    weighed = encode(part, elements, block, scale, size, weights, engine.spare, frame, start)
            else:
                for j in range(size):
                    frame[start + j] = 0
            if slot.opening:
                for j in range(8):
                    offset = config.opening_places[j] - column * config.block_words
                    if 0 <= offset < config.block_words:
                        word = np.uint32(config.opening_words[j])
                        place = np.uint64(offset)
                        frame[start + place] = swap(word)
                        weighed = np.uint32(weighed + word * weights[place])
            check = np.uint32(check + weighed * weights[size + np.uint64(column)])
            start += size
        frame_bytes: Any = 4 * np.int64(start)
        slot.frame_bytes = frame_bytes
        slot.retransmits = 0
        slot.renumbered = False
        slot.seen = -1
        slot.corrupt_results = 0
        first = (WIRE_VERSION << VERSION_SHIFT) | (CONTRIBUTE << TYPE_SHIFT)
        first |= (config.job << JOB_SHIFT) | (present << PRESENT_SHIFT)
        switch = slot.switch
        second = (config.epoch << EPOCH_SHIFT) | slot.number
        total = first + second + slot.round_number + check
        for column in range(columns):
            total += slot.keys[column]
            frame[KEYS_WORD + column] = swap(np.uint32(slot.keys[column]))
        total %= 0xFFFF
        frame[TYPE_WORD] = swap(np.uint32(first))
        frame[SLOT_WORD] = swap(np.uint32(second))
        frame[ROUND_WORD] = swap(np.uint32(slot.round_number))
        frame[SEEN_WORD] = 0
        frame[SECRET_WORD] = swap(engine.secrets[switch, 0])
        frame[SECRET_WORD + 1] = swap(engine.secrets[switch, 1])
        frame[CHECK_WORD] = swap(check)
        frame[GUARD_WORD] = swap(np.uint32((0xFFFF - (total if total else 0xFFFF)) << CHECKSUM_SHIFT))
        on_frame_sent(engine.loss[switch], slots, index, now)
    state.contributions = 0
    set_loss_detection_timers(engine)
