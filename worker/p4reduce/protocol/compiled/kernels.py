"""The hot path of a collective: read frames, store sums, look ahead, encode, frame, and what recovery keeps.

It follows `protocol/engine.py` and `protocol/recovery.py` step by step, over arrays that `collective.py` makes and
fills; what is rare is handed back to it (the events). No constant of the protocol stands here: they come in `head`
and `times`, so that what numba keeps on disk of this file never holds an old one.

    head    int64: what the collective is, where it stands, its counts        (`COLUMNS` and on)
    times   float64: recovery's clock, and what is known of the path          (`ANSWERED_AT` and on)
    slots   int64 [slots, FIELDS]: `protocol/slot.py`'s SlotState             (`ROUND` and on)
    spans   int64 [3, frames]: where each frame of the burst begins in `data` (words), its bytes, what it is
    answers int64 [3, frames]: the slots that go on, the columns each fills with its own blocks and with zeros
    frames  uint32 [slots, words]: what each slot sent last, as it is on the wire
    segments int64 [segments, 6]: see `SEGMENT_FIRST` and on
    tables  float64 [segments, 2, 256]: by exponent, what a number is multiplied with to become a word, and back

Words are uint32 in this machine's order, frames big-endian: for little-endian machines.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from p4reduce_contracts.kernels import kernel

# head: what the collective is
COLUMNS, BLOCK_WORDS, HEADER_WORDS, VERSION, CONTRIBUTE, RESULT, PENDING, JOB, EPOCH = range(9)
SECRET_HIGH, SECRET_LOW, FULL, KEY_NONE, COLUMN_DONE, GROWTH_BLOCKS, STRIDE, N_BLOCKS, SEGMENTS = range(9, 18)
CALL_COLUMN, CALL_OFFSET, CALL_WORDS = range(18, 21)  # and three more words
# head: where it stands
SLOTS, OPEN, REFUSED, COMPARED, FRAMES, NEXT, ANSWERS, SENT, ANSWERED, PROBES, FIRST, LAST, WAITING = range(24, 37)
QUICK_TRIES, HEARD_FOREIGN, HEARD_MALFORMED, HEARD_STALE = range(37, 41)
# head: counts, named as in stats.CollectiveStats
ROUNDS, BLOCKS_UP, BLOCKS_DOWN, RETRANSMISSIONS, LOSSES, PENDINGS, STALE, FOREIGN, CORRUPT, MALFORMED = range(41, 51)
HEAD = 51

# times
ANSWERED_AT, ANSWER_TOOK, SILENCE, SILENT_UNTIL, NEXT_TIMER, SMOOTHED, VARIATION, FASTEST, GAP = range(9)
SHORTEST_SILENCE, LONGEST_SILENCE, LONGEST_LATE, GRANULARITY, SURPRISE, INITIAL = range(9, 15)
TIMES = 15

# slots
ROUND, EXPECTED, OPENING, DONE, FRAME_BYTES, ORDER, TRIES, SEEN, CORRUPT_ANSWERS, CORRUPT_TRY = range(10)
BEFORE, AFTER, WAITS = range(10, 13)  # the list of unanswered frames, in the order in which they were sent
KEYS, FLOORS, BLOCKS, EXPONENTS = 16, 24, 32, 40  # one a column each
FIELDS = 48

# segments: first block; the span of its elements in `elements`; blocks of other senders between two of it, plus one;
# numbers a word (0: the elements are words); whether its sums are stored as floats
SEGMENT_FIRST, SEGMENT_BEGIN, SEGMENT_END, SEGMENT_STEP, SEGMENT_LANES, SEGMENT_DECODES = range(6)

# why `accept` stopped: all frames are read, or Python has to see to frame NEXT
END, CALLS, EARLY, DAMAGED = range(4)
# what a frame is
OTHER, A_RESULT, A_PENDING = range(3)


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


@kernel("void(int64[::1], float64[::1], float64)")
def begin_silence(head: Any, times: Any, now: Any) -> Any:
    """Wait anew for the next RESULT (Recovery._begin_silence)."""
    timeout = times[INITIAL]
    if not np.isnan(times[SMOOTHED]):
        timeout = times[SMOOTHED] + max(times[GRANULARITY], 4 * times[VARIATION])
    times[SILENCE] = min(max(times[SHORTEST_SILENCE], 2 * timeout), times[LONGEST_SILENCE])
    times[SILENT_UNTIL] = now + times[SILENCE]


@kernel("void(int64[::1], int64[:, ::1], int64)")
def unlink(head: Any, slots: Any, index: Any) -> Any:
    """Take a slot out of the list of unanswered frames."""
    before, after = slots[index, BEFORE], slots[index, AFTER]
    if before < 0:
        head[FIRST] = after
    else:
        slots[before, AFTER] = after
    if after < 0:
        head[LAST] = before
    else:
        slots[after, BEFORE] = before
    slots[index, WAITS] = 0
    head[WAITING] -= 1


@kernel("void(int64[::1], int64[:, ::1], float64[::1], int64, float64)")
def sent(head: Any, slots: Any, sent_at: Any, index: Any, now: Any) -> Any:
    """Wait for the answer to the frame that a slot sends now (Recovery.sent)."""
    head[SENT] += 1
    if slots[index, WAITS]:
        unlink(head, slots, index)
    slots[index, ORDER] = head[SENT]
    sent_at[index] = now
    last = head[LAST]
    slots[index, BEFORE], slots[index, AFTER], slots[index, WAITS] = last, -1, 1
    if last < 0:
        head[FIRST] = index
    else:
        slots[last, AFTER] = index
    head[LAST] = index
    head[WAITING] += 1


@kernel("void(int64[::1], float64[::1], int64[:, ::1], float64[::1], int64, float64)")
def answered(head: Any, times: Any, slots: Any, sent_at: Any, index: Any, now: Any) -> Any:
    """Take note of a RESULT (Recovery.answered, RoundTrip.sample)."""
    if not slots[index, WAITS]:
        return
    unlink(head, slots, index)
    if slots[index, ORDER] > head[ANSWERED]:
        took = now - sent_at[index]
        if slots[index, TRIES] == 0 and slots[index, OPENING] == 0:
            gap = now - times[ANSWERED_AT]
            if np.isnan(times[SMOOTHED]):
                times[SMOOTHED], times[VARIATION] = took, took / 2
                times[FASTEST], times[GAP] = took, gap
            else:
                times[FASTEST] = min(times[FASTEST], took)
                most = times[SURPRISE] * max(times[VARIATION], times[GRANULARITY])
                surprise = min(took - times[SMOOTHED], most)
                times[VARIATION] += (abs(surprise) - times[VARIATION]) / 4
                times[SMOOTHED] += surprise / 8
                times[GAP] += (gap - times[GAP]) / 8
        head[ANSWERED] = slots[index, ORDER]
        times[ANSWER_TOOK] = took
    times[ANSWERED_AT] = now
    begin_silence(head, times, now)


@kernel("float64(int64[::1], float64[::1], int64[:, ::1], float64[::1], int64)")
def late_at(head: Any, times: Any, slots: Any, sent_at: Any, index: Any) -> Any:
    """Return when an overtaken frame is to be sent again (Recovery._late_at)."""
    took = max(times[ANSWER_TOOK], times[FASTEST])
    queue = head[WAITING] * times[GAP]
    late = took + max(times[GRANULARITY], took / 4, min(took, queue))
    doublings = max(0, slots[index, TRIES] - head[QUICK_TRIES])
    if slots[index, SEEN] >= 0:
        doublings += 1
    return sent_at[index] + min(late * float(1 << min(doublings, 60)), times[LONGEST_LATE])


@kernel("void(int64[::1], float64[::1], int64[:, ::1], float64[::1])")
def set_timer(head: Any, times: Any, slots: Any, sent_at: Any) -> Any:
    """Set NEXT_TIMER: when something may have to be sent again (Recovery.next_timer); infinity when all is answered."""
    index = head[FIRST]
    timer = np.inf if index < 0 else times[SILENT_UNTIL]
    while index >= 0 and slots[index, ORDER] <= head[ANSWERED]:
        timer = min(timer, late_at(head, times, slots, sent_at, index))
        index = slots[index, AFTER]
    times[NEXT_TIMER] = timer


@kernel("int64(int64[::1], float64[::1], int64[:, ::1], float64[::1], int64[:, ::1], float64)")
def repeat(head: Any, times: Any, slots: Any, sent_at: Any, answers: Any, now: Any) -> Any:
    """Return how many slots' frames are to be sent again, those in the first row of `answers` (Recovery.due)."""
    due = 0
    index = head[FIRST]
    while index >= 0 and slots[index, ORDER] <= head[ANSWERED]:
        after = slots[index, AFTER]
        if late_at(head, times, slots, sent_at, index) <= now:
            answers[0, due] = index
            due += 1
        index = after
    for i in range(due):
        index = answers[0, i]
        slots[index, TRIES] += 1
        sent(head, slots, sent_at, index, now)
    if due == 0 and now >= times[SILENT_UNTIL]:
        tries = -1
        while due < head[PROBES] and due < head[WAITING]:  # by tries, and of as many tries the oldest first
            least: Any = np.iinfo(np.int64).max
            index = head[FIRST]
            while index >= 0:
                if slots[index, TRIES] > tries:
                    least = min(least, slots[index, TRIES])
                index = slots[index, AFTER]
            tries = least
            index = head[FIRST]
            while index >= 0 and due < head[PROBES]:
                if slots[index, TRIES] == tries:
                    answers[0, due] = index
                    due += 1
                index = slots[index, AFTER]
        for i in range(due):
            slots[answers[0, i], TRIES] += 1  # it keeps its place in the order
        if head[ANSWERED]:
            head[PROBES] = min(2 * head[PROBES], len(slots))
        times[SILENCE] = min(2 * times[SILENCE], times[LONGEST_SILENCE])
        times[SILENT_UNTIL] = now + times[SILENCE]
    head[RETRANSMISSIONS] += due
    set_timer(head, times, slots, sent_at)
    return due


@kernel("void(int64[::1], Array(uint32, 1, 'C', True), int64[:, ::1])")
def read(head: Any, data: Any, spans: Any) -> Any:
    """Say what each frame of the burst is; those that are none, or not for this rank, are counted."""
    header, size = head[HEADER_WORDS], head[BLOCK_WORDS]
    for i in range(head[FRAMES]):
        at, length = spans[0, i], spans[1, i]
        spans[2, i] = OTHER
        if length < 4 * header or length & 3:
            head[MALFORMED] += 1
            continue
        first = np.int64(swap(data[at]))
        kind, present = (first >> 24) & 15, (first >> 8) & 255
        columns = 0
        for column in range(8):
            columns += (present >> column) & 1
        guard = np.int64(swap(data[at + 7]))
        total = first + swap(data[at + 1]) + swap(data[at + 2]) + swap(data[at + 3]) + swap(data[at + 6])
        for key in range(8, header):
            total += swap(data[at + key])
        total %= 0xFFFF
        if (
            first >> 28 != head[VERSION]
            or kind < head[CONTRIBUTE]
            or kind > head[PENDING]
            or first & 255
            or guard & 0xFFFF
            or present >> head[COLUMNS]
            or length != 4 * (header + columns * size)
            or guard >> 16 != 0xFFFF - (total if total else 0xFFFF)
        ):
            head[MALFORMED] += 1
        elif (
            (first >> 16) & 255 != head[JOB]
            or swap(data[at + 1]) >> 16 != head[EPOCH]
            or swap(data[at + 4]) != head[SECRET_HIGH]
            or swap(data[at + 5]) != head[SECRET_LOW]
            or kind == head[CONTRIBUTE]
        ):
            head[FOREIGN] += 1
        else:
            spans[2, i] = A_RESULT if kind == head[RESULT] else A_PENDING


@kernel("boolean(int64[::1], int64[:, ::1], Array(uint32, 1, 'C', True), int64, int64)")
def plausible(head: Any, slots: Any, data: Any, at: Any, index: Any) -> Any:
    """Return whether the keys of the RESULT at `at` are no later than this rank's own and stay in their column."""
    for column in range(head[COLUMNS]):
        key = np.int64(swap(data[at + 8 + column]))
        if key > slots[index, KEYS + column]:
            return False
        if key != head[KEY_NONE]:
            block = key >> 8
            if block <= slots[index, FLOORS + column] or block >= head[N_BLOCKS]:
                return False
            if block % head[STRIDE] != index * head[COLUMNS] + column or key & 255 == 0:
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
    word of frame NEXT - 1 is wrong.
    """
    if head[NEXT] == 0 and head[COMPARED] == 0:
        read(head, data, spans)
    columns, size = head[COLUMNS], head[BLOCK_WORDS]
    floats = sums.view(np.float32)
    while head[NEXT] < head[FRAMES]:
        i = head[NEXT]
        head[NEXT] += 1
        if spans[2, i] == OTHER:
            continue
        at = spans[0, i]
        index = np.int64(swap(data[at + 1])) & 0xFFFF
        if index >= head[SLOTS] or slots[index, FRAME_BYTES] == 0 or swap(data[at + 2]) != slots[index, ROUND]:
            head[STALE] += 1
            continue
        if spans[2, i] == A_PENDING:
            head[PENDINGS] += 1
            slots[index, SEEN] = swap(data[at + 3])
            head[HEARD_FOREIGN], head[HEARD_MALFORMED] = head[FOREIGN], head[MALFORMED]
            head[HEARD_STALE] = head[STALE]
            continue
        present = (swap(data[at]) >> 8) & 255
        if present != slots[index, EXPECTED] or swap(data[at + 3]) != head[FULL]:
            head[MALFORMED] += 1
            continue
        check = np.uint32(0)
        start = at + head[HEADER_WORDS]
        for column in range(columns):
            if (present >> column) & 1:
                part = np.uint32(0)
                for j in range(size):
                    part = np.uint32(part + swap(data[start + j]) * weights[8 + j])
                check = np.uint32(check + part * weights[column])
                start += size
        if check != swap(data[at + 6]):
            head[CORRUPT] += 1
            return DAMAGED
        opening = slots[index, OPENING]
        if opening and index == 0:
            if head[COMPARED] == 0:
                head[NEXT] = i
                return CALLS
            head[COMPARED] = 0
        elif opening and slots[0, OPENING] and plausible(head, slots, data, at, index):
            answered(head, times, slots, sent_at, index, now)
            return EARLY
        if head[REFUSED]:
            answered(head, times, slots, sent_at, index, now)
            head[ROUNDS] += 1
            slots[index, ROUND] = (slots[index, ROUND] + 1) & 0xFFFFFFFF
            slots[index, OPENING], slots[index, DONE], slots[index, FRAME_BYTES] = 0, 1, 0
            head[OPEN] -= 1
            continue
        if not plausible(head, slots, data, at, index):
            head[MALFORMED] += 1
            continue
        if not opening:
            start = at + head[HEADER_WORDS]
            for column in range(columns):
                if (present >> column) & 1:
                    block, exponent = slots[index, BLOCKS + column], slots[index, EXPONENTS + column]
                    segment = segment_of(segments, head[SEGMENTS], block)
                    to = block * size
                    if segments[segment, SEGMENT_DECODES]:
                        unit = tables[segment, 1, exponent]
                        for j in range(size):
                            floats[to + j] = np.float32(np.int32(swap(data[start + j])) * unit)
                    else:
                        for j in range(size):
                            sums[to + j] = swap(data[start + j])
                    agreed[block] = exponent
                    head[BLOCKS_DOWN] += 1
                    start += size
            if slots[index, TRIES] > 0 and slots[index, SEEN] < 0:
                head[LOSSES] += 1
        answered(head, times, slots, sent_at, index, now)
        head[ROUNDS] += 1
        head[HEARD_FOREIGN], head[HEARD_MALFORMED], head[HEARD_STALE] = head[FOREIGN], head[MALFORMED], head[STALE]
        slots[index, ROUND] = (slots[index, ROUND] + 1) & 0xFFFFFFFF
        slots[index, OPENING], slots[index, FRAME_BYTES] = 0, 0
        expected, own = 0, 0
        for column in range(columns):
            key = np.int64(swap(data[at + 8 + column]))
            slots[index, KEYS + column] = head[KEY_NONE]
            slots[index, FLOORS + column] = head[COLUMN_DONE]
            if key != head[KEY_NONE]:
                block = key >> 8
                slots[index, FLOORS + column] = block
                slots[index, BLOCKS + column] = block
                slots[index, EXPONENTS + column] = 255 - (key & 255)
                slots[index, KEYS + column] = mine[block + head[STRIDE]]
                expected |= 1 << column
                if mine[block] >> 8 == block:
                    own |= 1 << column
        if expected == 0:
            slots[index, DONE] = 1
            head[OPEN] -= 1
            continue
        slots[index, EXPECTED] = expected
        missing = expected & ~own
        zeros, spare = 0, -head[GROWTH_BLOCKS]
        for column in range(columns):
            spare += (missing >> column) & 1
        for column in range(columns):
            if spare > 0 and (missing >> column) & 1:
                zeros |= 1 << column
                spare -= 1
        count = head[ANSWERS]
        answers[0, count], answers[1, count], answers[2, count] = index, own, zeros
        head[ANSWERS] = count + 1
    return END


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
    columns, size = head[COLUMNS], head[BLOCK_WORDS]
    numbers = elements.view(np.float32)
    for i in range(head[ANSWERS]):
        index, own, zeros = answers[0, i], answers[1, i], answers[2, i]
        frame = frames[index]
        at = head[HEADER_WORDS]
        check = np.uint32(0)
        for column in range(columns):
            if not ((own | zeros) >> column) & 1:
                continue
            for j in range(size):
                frame[at + j] = 0
            if (own >> column) & 1:
                part = np.uint32(0)
                if slots[index, OPENING]:
                    for j in range(4):
                        word = np.uint32(head[CALL_WORDS + j])
                        frame[at + head[CALL_OFFSET] + j] = swap(word)
                        part = np.uint32(part + word * weights[8 + head[CALL_OFFSET] + j])
                else:
                    block = slots[index, BLOCKS + column]
                    segment = segment_of(segments, head[SEGMENTS], block)
                    lanes = segments[segment, SEGMENT_LANES]
                    row = (block - segments[segment, SEGMENT_FIRST]) // segments[segment, SEGMENT_STEP]
                    begin = segments[segment, SEGMENT_BEGIN] + row * size * max(1, lanes)
                    count = segments[segment, SEGMENT_END] - begin
                    scale = tables[segment, 0, slots[index, EXPONENTS + column]]
                    if lanes == 0:
                        for j in range(min(count, size)):
                            word = elements[begin + j]
                            frame[at + j] = swap(word)
                            part = np.uint32(part + word * weights[8 + j])
                    elif lanes == 1:
                        for j in range(min(count, size)):
                            word = np.uint32(np.int32(np.rint(numbers[begin + j] * scale)))
                            frame[at + j] = swap(word)
                            part = np.uint32(part + word * weights[8 + j])
                    else:
                        for j in range(min((count + lanes - 1) // lanes, size)):
                            word = np.uint32(0)
                            for lane in range(min(lanes, count - j * lanes)):
                                level = np.int64(np.rint(numbers[begin + j * lanes + lane] * scale))
                                word = np.uint32(word + (level << (lane * (32 // lanes))))
                            frame[at + j] = swap(word)
                            part = np.uint32(part + word * weights[8 + j])
                    head[BLOCKS_UP] += 1
                check = np.uint32(check + part * weights[column])
            at += size
        first = (head[VERSION] << 28) | (head[CONTRIBUTE] << 24) | (head[JOB] << 16) | ((own | zeros) << 8)
        second = (head[EPOCH] << 16) | index
        total = first + second + slots[index, ROUND] + check
        for column in range(columns):
            total += slots[index, KEYS + column]
            frame[8 + column] = swap(np.uint32(slots[index, KEYS + column]))
        total %= 0xFFFF
        frame[0], frame[1] = swap(np.uint32(first)), swap(np.uint32(second))
        frame[2], frame[3] = swap(np.uint32(slots[index, ROUND])), 0
        frame[4], frame[5] = swap(np.uint32(head[SECRET_HIGH])), swap(np.uint32(head[SECRET_LOW]))
        frame[6] = swap(check)
        frame[7] = swap(np.uint32((0xFFFF - (total if total else 0xFFFF)) << 16))
        slots[index, FRAME_BYTES] = 4 * at
        slots[index, TRIES], slots[index, SEEN], slots[index, CORRUPT_ANSWERS] = 0, -1, 0
        sent(head, slots, sent_at, index, now)
    head[ANSWERS] = 0
    set_timer(head, times, slots, sent_at)


@kernel("void(boolean[::1], uint8[::1], int64, uint32, uint32[::1])")
def look_ahead(nonzero: Any, exponents: Any, stride: Any, none: Any, keys: Any) -> Any:
    """Set `keys` [at least blocks + stride]: the key of the first held block at or after each in its column."""
    count = len(nonzero)
    for block in range(count, len(keys)):
        keys[block] = none
    for block in range(count - 1, -1, -1):
        if nonzero[block]:
            keys[block] = (block << 8) | (255 - exponents[block])
        else:
            keys[block] = keys[block + stride]
