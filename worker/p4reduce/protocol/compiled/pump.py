"""A collective over a socket in one native call: receive, take in, answer, repeat, until Python is needed."""

from __future__ import annotations

from typing import Any

import numpy as np

from p4reduce.protocol.compiled.kernels import accept, answer
from p4reduce.protocol.compiled.layout import (
    ANSWERS,
    BLOCK_WORDS,
    BYTES_DOWN,
    BYTES_UP,
    COLUMNS,
    ENCAP,
    END,
    FRAME_BYTES,
    FRAMES,
    FRAMES_DOWN,
    FRAMES_UP,
    GRANULARITY,
    HEADER_WORDS,
    HELD_BACK,
    NEXT,
    NEXT_TIMER,
    OPEN,
    OPENING,
    ROUNDS,
    SLOTS,
    SMOOTHED,
    WAITING,
)
from p4reduce.protocol.compiled.recovery import repeat, set_timer
from p4reduce_runtime.datagrams import RECEIVE_BYTES, SEGMENT
from p4reduce_runtime.datagrams.kernels import microseconds, receive, send, wait
from p4reduce_runtime.kernels import kernel

# why `run` stopped, beside what `accept` stops for
PAUSE, RELEASE = 10, 11
LONGEST_LATENESS = 0.1
"""After so many seconds a timer is seen to although frames keep coming."""


@kernel("int64(int64[::1], uint32[::1], int64[::1], int64[:, ::1])")
def receive_burst(io: Any, ring: Any, head: Any, spans: Any) -> Any:
    """Receive all that has arrived and finds room, as the burst that `accept` takes in; return how many datagrams."""
    data = ring.view(np.uint8)
    count, at, room = 0, 0, spans.shape[1]
    while at + RECEIVE_BYTES <= len(data) and count < room:
        got = receive(io, data, at)
        if got < 0:
            break
        size, start = max(1, io[SEGMENT]), 0
        while start == 0 or start < got and count < room:
            spans[0, count] = (at + start) >> 2
            spans[1, count] = min(size, got - start) if start == 0 or size & 3 == 0 else 0  # else no frame, nor behind
            start += size
            count += 1
        head[BYTES_DOWN] += got
        at += (got + 7) & ~7
    head[FRAMES] = count
    head[NEXT] = 0
    head[FRAMES_DOWN] += count
    head[BYTES_DOWN] += count * head[ENCAP]
    return count


@kernel("int64(int64[::1], float64[::1])")
def frames_together(head: Any, times: Any) -> Any:
    """Return how many frames that leave one after the other may change places.

    Every rank puts others together, and recovery takes it that all send in one order, give or take GRANULARITY: so a
    quarter of what is answered in that time, and of all that wait. None in a collective's first round with blocks: how
    long rounds take says nothing then, where a link lets a burst pass before it slows down.
    """
    if head[ROUNDS] <= head[SLOTS] or not times[SMOOTHED] > 0:
        return 1
    return max(1, np.int64(head[WAITING] * min(1.0, times[GRANULARITY] / times[SMOOTHED]) / 4))


@kernel(
    "void(int64[::1], int64[::1], int64[::1], int64[:, ::1], int64[::1], int64[:, ::1], uint32[:, ::1], int64[:, ::1], "
    "int64, int64)"
)
def send_frames(
    io: Any,
    to: Any,
    writable: Any,
    vector: Any,
    head: Any,
    slots: Any,
    frames: Any,
    answers: Any,
    count: Any,
    together: Any,
) -> Any:
    """Send the frames of the first `count` slots in `answers`; what the socket does not take in time counts as lost.

    Of `together` frames in turn, those with as many blocks leave one after the other, so that they can leave in runs.
    """
    base, room = np.int64(frames.ctypes.data), 4 * frames.shape[1]
    put: Any = 0
    for begin in range(0, count, together):
        end = min(begin + together, count)
        for blocks in range(head[COLUMNS], -1, -1):
            size = 4 * (head[HEADER_WORDS] + blocks * head[BLOCK_WORDS])
            for i in range(begin, end if put < end else begin):
                if slots[answers[0, i], FRAME_BYTES] == size:
                    vector[0, put] = base + answers[0, i] * room
                    vector[1, put] = size
                    head[BYTES_UP] += size + head[ENCAP]
                    put += 1
    head[FRAMES_UP] += count
    first, tried = 0, -1
    while first < count:
        first = send(io, to, vector[0], vector[1], first, count)
        if first == tried:  # nothing has left for a while: the rest is lost
            break
        if first < count:
            tried = first
            wait(writable, 50)


@kernel(
    "int64(int64[::1], int64[::1], int64[:, ::1], int64[:, ::1], uint32[::1], int64[::1], float64[::1], "
    "int64[:, ::1], float64[::1], uint32[::1], uint8[::1], int64[:, ::1], float64[:, :, ::1], uint32[::1], "
    "Array(uint32, 1, 'C', True), uint32[::1], uint32[:, ::1], int64[:, ::1], int64[:, ::1], float64)"
)
def run(
    io: Any,
    to: Any,
    polled: Any,
    vector: Any,
    ring: Any,
    head: Any,
    times: Any,
    slots: Any,
    sent_at: Any,
    mine: Any,
    agreed: Any,
    segments: Any,
    tables: Any,
    weights: Any,
    elements: Any,
    sums: Any,
    frames: Any,
    spans: Any,
    answers: Any,
    until: Any,
) -> Any:
    """Go on with the collective; return PAUSE when it is done, or `until` is over.

    Else an event of `accept`, or RELEASE: the frames that waited for slot 0's opening may be taken in now. `polled` has
    the words to wait until the socket is readable, and writable; `vector` room for as many frames as there are slots.
    """
    while True:
        now = microseconds(io) * 1e-6
        if head[NEXT] < head[FRAMES]:
            event = accept(
                head, times, slots, sent_at, mine, agreed, segments, tables, weights, sums, ring, spans, answers, now
            )
            if event != END:
                return event
        if head[HELD_BACK] and slots[0, OPENING] == 0:
            return RELEASE
        count = head[ANSWERS]
        if count:
            answer(head, times, slots, sent_at, segments, tables, weights, elements, frames, answers, now)
            together = frames_together(head, times)
            send_frames(io, to, polled[1], vector, head, slots, frames, answers, count, together)
        else:
            set_timer(head, times, slots, sent_at)  # what was accepted may have ended slots, and overtaken others
        if head[OPEN] == 0 or now >= until:
            return PAUSE
        late = now - times[NEXT_TIMER]  # what has arrived comes first: it may be the answer that the timer misses
        if receive_burst(io, ring, head, spans) and late < LONGEST_LATENESS:
            continue
        if late >= 0:
            count = repeat(head, times, slots, sent_at, answers, now)
            together = frames_together(head, times)
            send_frames(io, to, polled[1], vector, head, slots, frames, answers, count, together)
            continue
        wait_ms: Any = np.int64(max(0.0, min(until, times[NEXT_TIMER]) - now) * 1000) + 1
        if wait(polled[0], wait_ms) < 0:
            return PAUSE  # a signal: Python has its handler
