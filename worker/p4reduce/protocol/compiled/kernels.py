"""The hot path of a collective: read frames, store sums, look ahead, encode, frame, and what recovery keeps.

It follows `protocol/engine.py` and `protocol/recovery.py` step by step, over arrays that `collective.py` makes and
fills; what is rare is handed back to it (the events). No constant of the protocol stands here: they come in `head`
and `times`, so that what numba keeps on disk of this file never holds an old one.

    head    int64: what the collective is, where it stands, its counts        (`COLUMNS` and on)
    times   float64: recovery's clock, and what is known of the path          (`ANSWERED_AT` and on)
    slots   int64 [slots, FIELDS]: `protocol/slot.py`'s SlotState             (`ROUND` and on)
    spans   int64 [3, frames]: where each frame of the burst begins in `data` (words), its bytes, its type or OTHER
    answers int64 [3, frames]: the slots that go on, the columns each fills with its own blocks and with zeros
    frames  uint32 [slots, words]: what each slot sent last, as it is on the wire
    segments int64 [segments, 6]: see `SEGMENT_FIRST` and on
    tables  float64 [segments, 2, 256]: by exponent, what a number is multiplied with to become a word, and back

Words are uint32 in this machine's order, frames big-endian: for little-endian machines.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from p4reduce.protocol.compiled.prefetch import prefetch
from p4reduce_contracts.kernels import kernel

# head: what the collective is
COLUMNS, BLOCK_WORDS, HEADER_WORDS, VERSION, CONTRIBUTE, RESULT, PENDING, JOB, EPOCH = range(9)
SECRET_HIGH, SECRET_LOW, FULL, KEY_NONE, COLUMN_DONE, GROWTH_BLOCKS, STRIDE, N_BLOCKS, SEGMENTS = range(9, 18)
CALL_COLUMN, CALL_OFFSET, CALL_WORDS = range(18, 21)  # and three more words
# head: where it stands
SLOTS, OPEN, REFUSED, COMPARED, FRAMES, NEXT, ANSWERS, SENT, ANSWERED, PROBES, FIRST, LAST, WAITING = range(24, 37)
QUICK_TRIES, HEARD_FOREIGN, HEARD_MALFORMED, HEARD_STALE = range(37, 41)
# head: counts, named as in stats.CollectiveStats
ROUNDS, BLOCKS_UP, BLOCKS_DOWN, RETRANSMISSIONS, LOSSES, PENDINGS, FOREIGN, MALFORMED, STALE, CORRUPT = range(41, 51)
FRAMES_UP, BYTES_UP, FRAMES_DOWN, BYTES_DOWN = range(51, 55)
# head: of `pump.py`
ENCAP, HELD_BACK = range(55, 57)
# head: whether blocks are missing between those held, so that the processor does not fetch the next by itself
SPARSE = 57
# head: the latest place of all that have their RESULT, frames that were sent again included
ANSWERED_AGAIN = 58
HEAD = 59

# times
ANSWERED_AT, ANSWER_TOOK, SILENCE, SILENT_UNTIL, NEXT_TIMER, SMOOTHED, VARIATION, FASTEST, GAP = range(9)
SHORTEST_SILENCE, LONGEST_SILENCE, LONGEST_LATE, GRANULARITY, SURPRISE, INITIAL, DOUBT, DOUBT_UNTIL = range(9, 17)
TIMES = 17

# slots
ROUND, EXPECTED, OPENING, DONE, FRAME_BYTES, ORDER, TRIES, SEEN, CORRUPT_ANSWERS, CORRUPT_TRY = range(10)
BEFORE, AFTER, WAITS = range(10, 13)  # the list of unanswered frames, in the order in which they were sent
MOVED = 13
KEYS, FLOORS, BLOCKS, EXPONENTS = 16, 24, 32, 40  # one a column each
FIELDS = 48

# segments: first block; the span of its elements in `elements`; blocks of other senders between two of it, plus one;
# numbers a word (0: the elements are words); whether its sums are stored as floats
SEGMENT_FIRST, SEGMENT_BEGIN, SEGMENT_END, SEGMENT_STEP, SEGMENT_LANES, SEGMENT_DECODES = range(6)

# why `accept` stopped: all frames are read, or Python has to see to frame NEXT
END, CALLS, EARLY, DAMAGED = range(4)
AHEAD = 4
"""How many frames before it is encoded a block of a sparse tensor is fetched from memory."""
OTHER = 0
"""In `spans`: no frame for this rank; else the frame's type."""


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


@kernel("float64(float64[::1])")
def timeout(times: Any) -> Any:
    """Return how long a round takes at most (RoundTrip.timeout_s)."""
    if np.isnan(times[SMOOTHED]):
        return times[INITIAL]
    return times[SMOOTHED] + max(times[GRANULARITY], 4 * times[VARIATION])


@kernel("void(int64[::1], float64[::1], float64)")
def begin_silence(head: Any, times: Any, now: Any) -> Any:
    """Wait anew for the next RESULT (Recovery._begin_silence)."""
    times[SILENCE] = min(max(times[SHORTEST_SILENCE], 2 * timeout(times)), times[LONGEST_SILENCE])
    times[SILENT_UNTIL] = now + times[SILENCE]


@kernel("void(int64[::1], int64[:, ::1], int64)")
def unlink(head: Any, slots: Any, index: Any) -> Any:
    """Take a slot out of the list of unanswered frames."""
    slot = slots[index]
    before, after = slot[BEFORE], slot[AFTER]
    if before < 0:
        head[FIRST] = after
    else:
        slots[before, AFTER] = after
    if after < 0:
        head[LAST] = before
    else:
        slots[after, BEFORE] = before
    slot[WAITS] = 0
    head[WAITING] -= 1


@kernel("void(int64[::1], int64[:, ::1], float64[::1], int64, float64)")
def sent(head: Any, slots: Any, sent_at: Any, index: Any, now: Any) -> Any:
    """Wait for the answer to the frame that a slot sends now (Recovery.sent)."""
    slot = slots[index]
    if slot[WAITS]:
        unlink(head, slots, index)
    head[SENT] += 1
    slot[ORDER] = head[SENT]
    sent_at[index] = now
    last = head[LAST]
    slot[BEFORE] = last
    slot[AFTER] = -1
    slot[WAITS] = 1
    if last < 0:
        head[FIRST] = index
    else:
        slots[last, AFTER] = index
    head[LAST] = index
    head[WAITING] += 1


@kernel("void(int64[::1], float64[::1], int64[:, ::1], float64[::1], int64, float64)")
def answered(head: Any, times: Any, slots: Any, sent_at: Any, index: Any, now: Any) -> Any:
    """Take note of a RESULT (Recovery.answered, RoundTrip.sample)."""
    slot = slots[index]
    if not slot[WAITS]:
        return
    unlink(head, slots, index)
    head[ANSWERED_AGAIN] = max(head[ANSWERED_AGAIN], slot[ORDER])
    if slot[ORDER] > head[ANSWERED] and slot[MOVED] == 0:
        took = now - sent_at[index]
        if slot[TRIES] == 0 and slot[OPENING] == 0:
            gap = now - times[ANSWERED_AT]
            if np.isnan(times[SMOOTHED]):
                times[SMOOTHED] = took
                times[VARIATION] = took / 2
                times[FASTEST] = took
                times[GAP] = gap
            else:
                times[FASTEST] = min(times[FASTEST], took)
                most = times[SURPRISE] * max(times[VARIATION], times[GRANULARITY])
                surprise = min(took - times[SMOOTHED], most)
                times[VARIATION] += (abs(surprise) - times[VARIATION]) / 4
                times[SMOOTHED] += surprise / 8
                times[GAP] += (gap - times[GAP]) / 8
        head[ANSWERED] = slot[ORDER]
        times[ANSWER_TOOK] = took
    times[ANSWERED_AT] = now
    times[DOUBT] = 0.0
    begin_silence(head, times, now)


@kernel("float64(int64[::1], float64[::1], int64[:, ::1], float64[::1], int64)")
def late_at(head: Any, times: Any, slots: Any, sent_at: Any, index: Any) -> Any:
    """Return when an overtaken frame is to be sent again (Recovery._late_at)."""
    took = max(times[ANSWER_TOOK], times[FASTEST])
    queue = head[WAITING] * times[GAP]
    late = took + max(max(times[GRANULARITY], took / 4), min(took, queue))
    doublings = max(0, slots[index, TRIES] - head[QUICK_TRIES])
    if slots[index, SEEN] >= 0:
        doublings += 1
    return sent_at[index] + min(late * float(1 << min(doublings, 60)), times[LONGEST_LATE])


@kernel("boolean(int64[::1], int64[:, ::1], int64)")
def in_doubt(head: Any, slots: Any, index: Any) -> Any:
    """Return whether nothing overtook this frame, sent once, but frames that were sent again (Recovery._in_doubt)."""
    return slots[index, MOVED] == 0 and slots[index, ORDER] > head[ANSWERED]


@kernel("float64(int64[::1], float64[::1], int64[:, ::1], float64[::1], int64)")
def again_at(head: Any, times: Any, slots: Any, sent_at: Any, index: Any) -> Any:
    """Return when an overtaken frame is to be sent again, of those in doubt one at a time (Recovery._again_at)."""
    if in_doubt(head, slots, index):
        return max(sent_at[index] + timeout(times), times[DOUBT_UNTIL])
    return late_at(head, times, slots, sent_at, index)


@kernel("void(int64[::1], float64[::1], int64[:, ::1], float64[::1])")
def set_timer(head: Any, times: Any, slots: Any, sent_at: Any) -> Any:
    """Set NEXT_TIMER: when something may have to be sent again (Recovery.next_timer); infinity when all is answered."""
    index = head[FIRST]
    timer = np.inf if index < 0 else times[SILENT_UNTIL]
    while index >= 0 and slots[index, ORDER] <= head[ANSWERED_AGAIN]:
        timer = min(timer, again_at(head, times, slots, sent_at, index))
        index = slots[index, AFTER]
    times[NEXT_TIMER] = timer


@kernel("int64(int64[::1], float64[::1], int64[:, ::1], float64[::1], int64[:, ::1], float64)")
def repeat(head: Any, times: Any, slots: Any, sent_at: Any, answers: Any, now: Any) -> Any:
    """Return how many slots' frames are to be sent again, those in the first row of `answers` (Recovery.due)."""
    due: Any = 0
    doubtful: Any = -1
    found = answers[0]
    index = head[FIRST]
    while index >= 0 and slots[index, ORDER] <= head[ANSWERED_AGAIN]:
        if again_at(head, times, slots, sent_at, index) <= now:
            if in_doubt(head, slots, index):
                doubtful = index
            else:
                found[due] = index
                due += 1
        index = slots[index, AFTER]
    for i in range(due):
        slots[found[i], TRIES] += 1
        slots[found[i], MOVED] = 1
        sent(head, slots, sent_at, found[i], now)
    if due == 0 and doubtful >= 0:
        found[0] = doubtful
        due = 1
        slots[doubtful, TRIES] += 1  # it keeps its place in the order
        times[DOUBT] = min(2 * times[DOUBT] if times[DOUBT] > 0 else timeout(times), times[LONGEST_LATE])
        times[DOUBT_UNTIL] = now + times[DOUBT]
    if due == 0 and now >= times[SILENT_UNTIL]:
        repeated, told = 0, 0
        index = head[FIRST]
        while index >= 0:
            if slots[index, TRIES]:
                repeated += 1
                if slots[index, SEEN] >= 0:
                    told += 1
            index = slots[index, AFTER]
        if head[ANSWERED] and (repeated == 0 or told < repeated):  # Recovery._others_are_late
            head[PROBES] = min(2 * head[PROBES], len(slots))
        head[PROBES] = max(1, head[PROBES])
        wanted = min(head[PROBES], head[WAITING])
        tries: Any = 0
        while due < wanted:  # by tries, and of as many tries the oldest first
            index = head[FIRST]
            while index >= 0 and due < wanted:
                if slots[index, TRIES] == tries:
                    found[due] = index
                    due += 1
                index = slots[index, AFTER]
            tries += 1
        for i in range(due):
            slots[found[i], TRIES] += 1  # it keeps its place in the order
        times[SILENCE] = min(2 * times[SILENCE], times[LONGEST_SILENCE])
        times[SILENT_UNTIL] = now + times[SILENCE]
    head[RETRANSMISSIONS] += due
    set_timer(head, times, slots, sent_at)
    return due


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
    word of frame NEXT - 1 is wrong.
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
        check = np.uint32(0)
        start = np.uint64(head[HEADER_WORDS])
        for column in range(columns):
            if (present >> column) & 1:
                part = np.uint32(0)
                for j in range(size):
                    part = np.uint32(part + swap(frame[start + j]) * weights[j])
                check = np.uint32(check + part * weights[size + np.uint64(column)])
                start += size
        if check != swap(frame[6]):
            head[CORRUPT] += 1
            return DAMAGED
        opening = slot[OPENING]
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


@kernel("void(boolean[::1], uint8[::1], int64, uint32, uint32[::1])")
def look_ahead(nonzero: Any, exponents: Any, stride: Any, none: Any, keys: Any) -> Any:
    """Set `keys` [at least blocks + stride]: the key of the first held block at or after each in its column."""
    count = len(nonzero)
    for block in range(count, len(keys)):
        keys[block] = none
    for begin in range((count - 1) // stride * stride, -1, -stride):
        row, later = keys[begin : begin + stride], keys[begin + stride : begin + 2 * stride]
        held, fields = nonzero[begin : begin + stride], exponents[begin : begin + stride]
        for place in range(min(stride, count - begin)):  # no two of a row are of one column: several at a time
            own = np.uint32(begin + place) << np.uint32(8) | (np.uint32(255) - np.uint32(fields[place]))
            chosen = np.uint32(0xFFFFFFFF) * np.uint32(held[place])
            row[place] = own & chosen | later[place] & ~chosen
