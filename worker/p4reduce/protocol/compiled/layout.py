"""The arrays of a compiled collective: `collective.py` makes and fills them, and the kernels work on them.

    head    int64: what the collective is, where it stands, its counts        (`COLUMNS` and on)
    times   float64: recovery's clock, and what is known of the path          (`ANSWERED_AT` and on)
    slots   int64 [slots, FIELDS]: `protocol/slot.py`'s SlotState             (`ROUND` and on)
    spans   int64 [3, frames]: where each frame of the burst begins in `data` (words), its bytes, its type or OTHER
    answers int64 [3, frames]: the slots that go on, the columns each fills with its own blocks and with zeros
    frames  uint32 [slots, words]: what each slot sent last, as it is on the wire
    segments int64 [segments, 7]: see `SEGMENT_FIRST` and on
    tables  float64 [segments, 2, 256]: by exponent, what a number is multiplied with to become a word, and back

Words are uint32 in this machine's order, frames big-endian: for little-endian machines.

No constant of the protocol stands here: they come in `head` and `times`, as they are when a collective begins.
"""

from __future__ import annotations

# head: what the collective is
COLUMNS, BLOCK_WORDS, HEADER_WORDS, VERSION, CONTRIBUTE, RESULT, PENDING, JOB, EPOCH = range(9)
SECRET_HIGH, SECRET_LOW, FULL, KEY_NONE, COLUMN_DONE, GROWTH_BLOCKS, STRIDE, N_BLOCKS, SEGMENTS = range(9, 18)
CALL_COLUMN, CALL_OFFSET, CALL_WORDS = range(18, 21)  # and three more words
# head: where it stands
SLOTS, OPEN, REFUSED, COMPARED, FRAMES, NEXT, ANSWERS, SENT, ANSWERED, TIMEOUTS, FIRST, LAST, WAITING = range(24, 37)
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
# head: bytes of the longest RESULT that came
LONGEST_RESULT = 59
HEAD = 60

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
# numbers a word (0: the elements are words); whether its sums are stored as floats; the largest absolute value of a sum
SEGMENT_FIRST, SEGMENT_BEGIN, SEGMENT_END, SEGMENT_STEP, SEGMENT_LANES, SEGMENT_DECODES, SEGMENT_LARGEST = range(7)

# why `accept` stopped: all frames are read, or Python has to see to frame NEXT
END, CALLS, EARLY, DAMAGED = range(4)
OTHER = 0
"""In `spans`: no frame for this rank; else the frame's type."""
