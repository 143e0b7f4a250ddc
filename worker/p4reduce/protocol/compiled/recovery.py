"""What is sent again, and when, over arrays: `protocol/recovery.py` and `rtt.py`, step by step. For kernels alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from p4reduce.protocol.compiled.layout import (
    AFTER,
    ANSWER_TOOK,
    ANSWERED,
    ANSWERED_AGAIN,
    ANSWERED_AT,
    BEFORE,
    DOUBT,
    DOUBT_UNTIL,
    FASTEST,
    FIRST,
    GAP,
    GRANULARITY,
    INITIAL,
    LAST,
    LONGEST_LATE,
    LONGEST_SILENCE,
    MOVED,
    NEXT_TIMER,
    OPENING,
    ORDER,
    QUICK_TRIES,
    RETRANSMISSIONS,
    SEEN,
    SENT,
    SHORTEST_SILENCE,
    SILENCE,
    SILENT_UNTIL,
    SMOOTHED,
    SURPRISE,
    TIMEOUTS,
    TRIES,
    VARIATION,
    WAITING,
    WAITS,
)
from p4reduce_runtime.kernels import kernel


@kernel("float64(float64[::1])")
def timeout(times: Any) -> Any:
    """Return how long a round takes at most (RoundTrip.timeout_s)."""
    if np.isnan(times[SMOOTHED]):
        return times[INITIAL]
    return times[SMOOTHED] + max(times[GRANULARITY], 4 * times[VARIATION])


@kernel("void(int64[::1], float64[::1], float64)")
def begin_silence(head: Any, times: Any, now: Any) -> Any:
    """Wait anew for the next RESULT (Recovery._begin_silence)."""
    head[TIMEOUTS] = 0
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
    if due == 0 and now >= times[SILENT_UNTIL] and head[WAITING]:
        wanted = min(2 if head[ANSWERED] and head[TIMEOUTS] else 1, head[WAITING])
        tries: Any = 0
        while due < wanted:  # by tries, and of as many tries the latest first
            index = head[LAST]
            while index >= 0 and due < wanted:
                if slots[index, TRIES] == tries:
                    found[due] = index
                    due += 1
                index = slots[index, BEFORE]
            tries += 1
        for i in range(due):
            slots[found[i], TRIES] += 1  # it keeps its place in the order
        head[TIMEOUTS] += 1
        times[SILENCE] = min(2 * times[SILENCE], times[LONGEST_SILENCE])
        times[SILENT_UNTIL] = now + times[SILENCE]
    head[RETRANSMISSIONS] += due
    set_timer(head, times, slots, sent_at)
    return due
