"""The hot path of a collective: read frames, store sums, choose what goes on, encode, frame.

It follows `protocol/engine.py` step by step, over the arrays of `layout.py`; what is rare is handed back to
`collective.py` (the events). That one finds here `begin_silence`, `repeat` and `look_ahead` too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from p4reduce.protocol.compiled.layout import (
    ANSWERS,
    BLOCK_WORDS,
    BLOCKS,
    BLOCKS_DOWN,
    BLOCKS_UP,
    CALL_OFFSET,
    CALL_WORDS,
    CALLS,
    COLUMN_DONE,
    COLUMNS,
    COMPARED,
    CONTRIBUTE,
    CORRUPT,
    CORRUPT_ANSWERS,
    DAMAGED,
    DONE,
    EARLY,
    END,
    EPOCH,
    EXPECTED,
    EXPONENTS,
    FLOORS,
    FOREIGN,
    FRAME_BYTES,
    FRAMES,
    FULL,
    GROWTH_BLOCKS,
    HEADER_WORDS,
    HEARD_FOREIGN,
    HEARD_MALFORMED,
    HEARD_STALE,
    JOB,
    KEY_NONE,
    KEYS,
    LONGEST_RESULT,
    LOSSES,
    MALFORMED,
    MOVED,
    N_BLOCKS,
    NEXT,
    OPEN,
    OPENING,
    OTHER,
    PENDING,
    PENDINGS,
    REFUSED,
    ROUND,
    ROUNDS,
    SECRET_HIGH,
    SECRET_LOW,
    SEEN,
    SEGMENT_BEGIN,
    SEGMENT_DECODES,
    SEGMENT_END,
    SEGMENT_FIRST,
    SEGMENT_LANES,
    SEGMENT_LARGEST,
    SEGMENT_STEP,
    SEGMENTS,
    SLOTS,
    SPARSE,
    STALE,
    STRIDE,
    TRIES,
    VERSION,
)
from p4reduce.protocol.compiled.lookahead import look_ahead
from p4reduce.protocol.compiled.prefetch import prefetch
from p4reduce.protocol.compiled.recovery import answered, begin_silence, repeat, sent, set_timer
from p4reduce_runtime.kernels import kernel

__all__ = ["accept", "answer", "begin_silence", "look_ahead", "repeat"]

AHEAD = 4
"""How many frames before it is encoded a block of a sparse tensor is fetched from memory."""


@kernel("uint32(uint32)")
def swap(word: Any) -> Any:
    """Return a word in the other byte order."""
    high = (word << np.uint32(24)) | ((word & np.uint32(0xFF00)) << np.uint32(8))
    low = ((word >> np.uint32(8)) & np.uint32(0xFF00)) | (word >> np.uint32(24))
    return np.uint32(high | low)


@kernel("int64(int64[:, ::1], int64, int64)")
def segment_of(segments: Any, count: Any, block: Any) -> Any:
    """Return the segment that a block is of: the last one that begins at it or before."""
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) >> 1
        if segments[middle, SEGMENT_FIRST] <= block:
            low = middle
        else:
            high = middle
    return low


@kernel("void(int64[::1], Array(uint32, 1, 'C', True), int64[:, ::1])")
def read(head: Any, data: Any, spans: Any) -> Any:
    """Say what each frame of the burst is; those that are none, or not for this rank, are counted."""
    header = head[HEADER_WORDS]
    for i in range(head[FRAMES]):
        length = spans[1, i]
        spans[2, i] = OTHER
        if length < 4 * header or length & 3:
            head[MALFORMED] += 1
            continue
        frame = data[spans[0, i] : spans[0, i] + header]
        first = np.int64(swap(frame[0]))
        second = swap(frame[1])
        guard = np.int64(swap(frame[7]))
        kind, present = (first >> 24) & 15, (first >> 8) & 255
        columns: Any = 0
        total = first + second + swap(frame[2]) + swap(frame[3]) + swap(frame[6])
        for column in range(header - 8):
            columns += (present >> column) & 1
            total += swap(frame[8 + column])
        total %= 0xFFFF
        if (
            first >> 28 != head[VERSION]
            or kind < head[CONTRIBUTE]
            or kind > head[PENDING]
            or first & 255
            or guard & 0xFFFF
            or present >> (header - 8)
            or length != 4 * (header + columns * head[BLOCK_WORDS])
            or guard >> 16 != 0xFFFF - (total if total else 0xFFFF)
        ):
            head[MALFORMED] += 1
        elif (
            (first >> 16) & 255 != head[JOB]
            or second >> 16 != head[EPOCH]
            or swap(frame[4]) != head[SECRET_HIGH]
            or swap(frame[5]) != head[SECRET_LOW]
            or kind == head[CONTRIBUTE]
        ):
            head[FOREIGN] += 1
        else:
            spans[2, i] = kind


@kernel("boolean(int64[::1], int64[::1], Array(uint32, 1, 'C', True), int64)")
def plausible(head: Any, slot: Any, keys: Any, index: Any) -> Any:
    """Return whether the keys of a RESULT are no later than this rank's own and stay in their column."""
    for column in range(head[COLUMNS]):
        key = np.int64(swap(keys[column]))
        if key > slot[KEYS + column]:
            return False
        if key != head[KEY_NONE]:
            block = key >> 8
            if block <= slot[FLOORS + column] or block >= head[N_BLOCKS] or key & 255 == 0:
                return False
            if block % head[STRIDE] != index * head[COLUMNS] + column:
                return False
    return True


@kernel(
    "int64(int64[::1], float64[::1], int64[:, ::1], float64[::1], uint32[::1], uint8[::1], int64[:, ::1], "
    "float64[:, :, ::1], uint32[::1], uint32[::1], Array(uint32, 1, 'C', True), int64[:, ::1], int64[:, ::1], float64)"
)
def accept(
    head: Any,
    times: Any,
    slots: Any,
    sent_at: Any,
    mine: Any,
    agreed: Any,
    segments: Any,
    tables: Any,
    weights: Any,
    sums: Any,
    data: Any,
    spans: Any,
    answers: Any,
    now: Any,
) -> Any:
    """Take in the burst's frames from NEXT on: store sums, and put the slots that go on into `answers`.

    Returns END, or what Python has to see to: CALLS, the descriptors in the RESULT of slot 0's opening round (set
    COMPARED, and REFUSED if so, and call again); EARLY, frame NEXT - 1 has to wait for that one; DAMAGED, the check
    word of frame NEXT - 1 is wrong, or one of its words larger than the ranks' words can add up to.
    """
    if head[NEXT] == 0 and head[COMPARED] == 0:
        read(head, data, spans)
    columns, size = head[COLUMNS], np.uint64(head[BLOCK_WORDS])  # unsigned: an index that needs no look at its sign
    floats = sums.view(np.float32)
    while head[NEXT] < head[FRAMES]:
        place = head[NEXT]
        head[NEXT] = place + 1
        if spans[2, place] == OTHER:
            continue
        frame = data[spans[0, place] : spans[0, place] + (spans[1, place] >> 2)]
        keys = frame[8:]
        index = np.int64(swap(frame[1])) & 0xFFFF
        if index >= head[SLOTS]:
            head[STALE] += 1
            continue
        slot = slots[index]
        if slot[FRAME_BYTES] == 0 or swap(frame[2]) != slot[ROUND]:
            head[STALE] += 1
            continue
        if spans[2, place] == head[PENDING]:
            head[PENDINGS] += 1
            slot[SEEN] = swap(frame[3])
            head[HEARD_FOREIGN] = head[FOREIGN]
            head[HEARD_MALFORMED] = head[MALFORMED]
            head[HEARD_STALE] = head[STALE]
            continue
        present = np.int64(swap(frame[0]) >> np.uint32(8)) & 255
        if present != slot[EXPECTED] or swap(frame[3]) != head[FULL]:
            head[MALFORMED] += 1
            continue
        opening = slot[OPENING]
        check = np.uint32(0)
        beyond = False
        start = np.uint64(head[HEADER_WORDS])
        for column in range(columns):
            if (present >> column) & 1:
                largest = np.int64(1) << 31
                if not opening:
                    largest = segments[segment_of(segments, head[SEGMENTS], slot[BLOCKS + column]), SEGMENT_LARGEST]
                above, low = np.uint32(0), np.uint32(largest)
                part = np.uint32(0)
                for j in range(size):
                    word = swap(frame[start + j])
                    part = np.uint32(part + word * weights[j])
                    above = max(above, np.uint32(word + low))  # how far above -largest
                check = np.uint32(check + part * weights[size + np.uint64(column)])
                if np.int64(above) > 2 * largest:
                    beyond = True
                start += size
        if check != swap(frame[6]) or beyond:
            head[CORRUPT] += 1
            return DAMAGED
        if opening and index == 0:
            if head[COMPARED] == 0:
                head[NEXT] = place
                return CALLS
            head[COMPARED] = 0
        fits = plausible(head, slot, keys, index)
        if opening and slots[0, OPENING] and index and fits or head[REFUSED]:
            answered(head, times, slots, sent_at, index, now)
            if index and slots[0, OPENING]:
                return EARLY
            head[ROUNDS] += 1
            slot[ROUND] = (slot[ROUND] + 1) & 0xFFFFFFFF
            slot[OPENING] = 0
            slot[DONE] = 1
            slot[FRAME_BYTES] = 0
            head[OPEN] -= 1
            continue
        if not fits:
            head[MALFORMED] += 1
            continue
        answered(head, times, slots, sent_at, index, now)
        if not opening and slot[TRIES] > 0 and slot[SEEN] < 0:
            head[LOSSES] += 1
        start = np.uint64(head[HEADER_WORDS])
        expected, own, missing = 0, 0, 0
        for column in range(columns):
            bit = 1 << column
            if not opening and present & bit:
                block, exponent = slot[BLOCKS + column], slot[EXPONENTS + column]
                agreed[block] = exponent
                head[BLOCKS_DOWN] += 1
                segment = segment_of(segments, head[SEGMENTS], block)
                to = np.uint64(block) * size
                room = min(size, np.uint64(len(sums)) - to)
                if segments[segment, SEGMENT_DECODES]:
                    unit = tables[segment, 1, exponent]
                    for j in range(room):
                        floats[to + j] = np.float32(np.int32(swap(frame[start + j])) * unit)
                else:
                    for j in range(room):
                        sums[to + j] = swap(frame[start + j])
                start += size
            key = np.int64(swap(keys[column]))
            if key == head[KEY_NONE]:
                slot[KEYS + column] = key
                slot[FLOORS + column] = head[COLUMN_DONE]
            else:
                block = key >> 8
                slot[FLOORS + column] = block
                slot[BLOCKS + column] = block
                slot[EXPONENTS + column] = 255 - (key & 255)
                slot[KEYS + column] = mine[block + head[STRIDE]]
                if head[SPARSE]:
                    prefetch(mine, (slot[KEYS + column] >> 8) + head[STRIDE], 1)  # for the next RESULT
                expected |= bit
                if mine[block] >> np.uint32(8) == block:
                    own |= bit
                else:
                    missing += 1
        head[ROUNDS] += 1
        head[HEARD_FOREIGN] = head[FOREIGN]
        head[HEARD_MALFORMED] = head[MALFORMED]
        head[HEARD_STALE] = head[STALE]
        head[LONGEST_RESULT] = max(head[LONGEST_RESULT], spans[1, place])
        slot[ROUND] = (slot[ROUND] + 1) & 0xFFFFFFFF
        slot[OPENING] = 0
        slot[FRAME_BYTES] = 0
        if expected == 0:
            slot[DONE] = 1
            head[OPEN] -= 1
            continue
        slot[EXPECTED] = expected
        zeros = 0
        for column in range(columns):  # protocol/growth.py
            if missing > head[GROWTH_BLOCKS] and ((expected & ~own) >> column) & 1:
                zeros |= 1 << column
                missing -= 1
        count = head[ANSWERS]
        answers[0, count] = index
        answers[1, count] = own
        answers[2, count] = zeros
        head[ANSWERS] = count + 1
    return END


@kernel("int64(int64[::1], int64[::1], int64)")
def first_element(head: Any, segment: Any, block: Any) -> Any:
    """Return where in `elements` a block of this segment begins."""
    row = block - segment[SEGMENT_FIRST]
    if segment[SEGMENT_STEP] != 1:  # a division takes as long as the rest
        row //= segment[SEGMENT_STEP]
    return segment[SEGMENT_BEGIN] + row * head[BLOCK_WORDS] * max(1, segment[SEGMENT_LANES])


@kernel("void(int64[::1], int64[:, ::1], int64[:, ::1], Array(uint32, 1, 'C', True), int64, int64)")
def fetch(head: Any, slots: Any, segments: Any, elements: Any, index: Any, own: Any) -> Any:
    """Have the blocks that a slot sends next fetched from memory; `own` as in `answers`."""
    slot = slots[index]
    for column in range(head[COLUMNS]):
        if (own >> column) & 1 and not slot[OPENING]:
            block = slot[BLOCKS + column]
            segment = segments[segment_of(segments, head[SEGMENTS], block)]
            prefetch(elements, first_element(head, segment, block), head[BLOCK_WORDS] * max(1, segment[SEGMENT_LANES]))


@kernel(
    "void(int64[::1], float64[::1], int64[:, ::1], float64[::1], int64[:, ::1], float64[:, :, ::1], uint32[::1], "
    "Array(uint32, 1, 'C', True), uint32[:, ::1], int64[:, ::1], float64)"
)
def answer(
    head: Any,
    times: Any,
    slots: Any,
    sent_at: Any,
    segments: Any,
    tables: Any,
    weights: Any,
    elements: Any,
    frames: Any,
    answers: Any,
    now: Any,
) -> Any:
    """Make the frames of the slots in `answers`, ANSWERS of them, and wait for what answers them."""
    columns, size = head[COLUMNS], np.uint64(head[BLOCK_WORDS])
    numbers = elements.view(np.float32)
    for i in range(min(AHEAD, head[ANSWERS]) if head[SPARSE] else 0):
        fetch(head, slots, segments, elements, answers[0, i], answers[1, i])
    for i in range(head[ANSWERS]):
        if head[SPARSE] and i + AHEAD < head[ANSWERS]:
            fetch(head, slots, segments, elements, answers[0, i + AHEAD], answers[1, i + AHEAD])
        index, own = answers[0, i], answers[1, i]
        present = own | answers[2, i]
        slot, frame = slots[index], frames[index]
        start = np.uint64(head[HEADER_WORDS])
        check = np.uint32(0)
        for column in range(columns):
            if not (present >> column) & 1:
                continue
            filled = np.uint64(0)
            part = np.uint32(0)
            if (own >> column) & 1 and not slot[OPENING]:
                head[BLOCKS_UP] += 1
                block = slot[BLOCKS + column]
                segment = segments[segment_of(segments, head[SEGMENTS], block)]
                lanes = segment[SEGMENT_LANES]
                begin = first_element(head, segment, block)
                count = segment[SEGMENT_END] - begin
                scale = tables[segment_of(segments, head[SEGMENTS], block), 0, slot[EXPONENTS + column]]
                at = np.uint64(begin)
                filled = min(size, np.uint64((count + lanes - 1) // lanes if lanes else count))
                if lanes == 0:
                    for j in range(filled):
                        word = elements[at + j]
                        frame[start + j] = swap(word)
                        part = np.uint32(part + word * weights[j])
                elif lanes == 1:
                    for j in range(filled):
                        word = np.uint32(np.int32(np.rint(numbers[at + j] * scale)))
                        frame[start + j] = swap(word)
                        part = np.uint32(part + word * weights[j])
                else:
                    for j in range(filled):
                        word = np.uint32(0)
                        for lane in range(min(lanes, count - np.int64(j) * lanes)):
                            level = np.int64(np.rint(numbers[begin + np.int64(j) * lanes + lane] * scale))
                            word = np.uint32(word + (level << (lane * (32 // lanes))))
                        frame[start + j] = swap(word)
                        part = np.uint32(part + word * weights[j])
            for j in range(filled, size):
                frame[start + j] = 0
            if slot[OPENING]:
                for j in range(4):
                    word = np.uint32(head[CALL_WORDS + j])
                    place = np.uint64(head[CALL_OFFSET] + j)
                    frame[start + place] = swap(word)
                    part = np.uint32(part + word * weights[place])
            check = np.uint32(check + part * weights[size + np.uint64(column)])
            start += size
        slot[FRAME_BYTES] = 4 * np.int64(start)
        slot[TRIES] = 0
        slot[MOVED] = 0
        slot[SEEN] = -1
        slot[CORRUPT_ANSWERS] = 0
        first = (head[VERSION] << 28) | (head[CONTRIBUTE] << 24) | (head[JOB] << 16) | (present << 8)
        second = (head[EPOCH] << 16) | index
        total = first + second + slot[ROUND] + check
        for column in range(columns):
            total += slot[KEYS + column]
            frame[8 + column] = swap(np.uint32(slot[KEYS + column]))
        total %= 0xFFFF
        frame[0] = swap(np.uint32(first))
        frame[1] = swap(np.uint32(second))
        frame[2] = swap(np.uint32(slot[ROUND]))
        frame[3] = 0
        frame[4] = swap(np.uint32(head[SECRET_HIGH]))
        frame[5] = swap(np.uint32(head[SECRET_LOW]))
        frame[6] = swap(check)
        frame[7] = swap(np.uint32((0xFFFF - (total if total else 0xFFFF)) << 16))
        sent(head, slots, sent_at, index, now)
    head[ANSWERS] = 0
    set_timer(head, times, slots, sent_at)
