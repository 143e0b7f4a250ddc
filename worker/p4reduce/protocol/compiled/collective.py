"""One collective, compiled: what `protocol/engine.py` does, with its frames read and made by kernels over arrays.

Frames in, frames out, counts, times and errors are the same, bit for bit; `tests/worker/protocol` holds both to that.
Here stands what is rare, and how the arrays begin; layout.py says what is in them.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p4reduce.errors import CorruptSumError, Reason
from p4reduce.protocol.call import Call, compare_calls, opening_columns, read_opening
from p4reduce.protocol.compiled import layout as at
from p4reduce.protocol.compiled.channel import Channel
from p4reduce.protocol.compiled.segments import Segments
from p4reduce.protocol.deadline import Obstacle, obstacle, refused_frames, too_late
from p4reduce.protocol.engine import SAME_CORRUPT_ANSWERS
from p4reduce.protocol.recovery import Recovery
from p4reduce.protocol.rtt import GRANULARITY_S, INITIAL_S, RoundTrip
from p4reduce.protocol.slot import COLUMN_DONE
from p4reduce.protocol.source import UNTOUCHED
from p4reduce.stats import CollectiveStats
from p4reduce_contracts.jobs.answers import WaitingSlot
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire import (
    CONTRIBUTE,
    KEY_NONE,
    MAX_GROWTH_BYTES,
    PENDING,
    RESULT,
    WIRE_VERSION,
    WORDS_PER_CALL,
)
from p4reduce_contracts.wire.check import COLUMN_FACTOR, weight
from p4reduce_runtime.datagrams import ENCAP_BYTES

_COUNTS: Final = (
    "rounds",
    "blocks_up",
    "blocks_down",
    "retransmissions",
    "losses",
    "pendings",
    "foreign",
    "malformed",
    "stale",
    "corrupt",
    "frames_up",
    "bytes_up",
    "frames_down",
    "bytes_down",
)
"""The fields of CollectiveStats that the kernels count, in their order in `head`."""


class CompiledCollective:
    """One rank's side of one collective; see `protocol/engine.py`'s Collective for what its arguments are.

    `slot_rounds` is advanced when the collective is done.
    """

    def __init__(
        self,
        kernels: ModuleType,
        lease: Lease,
        slot_rounds: list[int],
        segments: Segments,
        call: Call,
        timeout_s: float,
        *,
        round_trip: RoundTrip | None = None,
        window: int | None = None,
        proposal: int | None = None,
        stats: CollectiveStats | None = None,
        refusal_window: int | None = None,
    ) -> None:
        self.call = call
        self.stats = CollectiveStats() if stats is None else stats
        self._kernels = kernels
        self._lease, self._geometry = lease, lease.geometry
        self._segments = segments
        self._rounds = slot_rounds
        self._timeout_s = timeout_s
        self._deadline = 0.0
        self._refused_before = refused_frames(self.stats)
        self._round_trip = RoundTrip() if round_trip is None else round_trip
        limit = min(window or lease.slot_count, lease.slot_count)
        count = max(1, min(limit, -(-segments.n_blocks // lease.columns)))
        self._refusal_window = max(count, min(refusal_window or limit, lease.slot_count))
        self.next_window = limit
        """Known after the opening round: the smallest window any rank proposed for the next collective."""
        self.refusals: dict[int, Reason] = {}
        """Known after slot 0's opening round: the ranks that cannot take part. With any, no block is sent."""
        self._early: dict[int, bytes] = {}
        """By slot: opening RESULTs that overtook slot 0's, which says whether all ranks take part."""
        self._corrupt: dict[int, bytes] = {}
        """By slot: the last RESULT that cannot be right."""
        self._unsent: list[bytes] = []
        words = call.words(limit if proposal is None else min(proposal, lease.slot_count))
        self._head = self._new_head(words, count)
        self._times = self._new_times()
        self._slots, self._sent_at, self._frames = self._new_slots(range(count))
        self._slots[0, at.EXPECTED] = (1 << opening_columns(lease.world_size, lease.block_words)) - 1
        self._weights = _weights(lease.block_words, lease.columns)
        stride = lease.columns * count
        self._mine = np.empty((-(-segments.n_blocks // stride) + 1) * stride, np.uint32)
        kernels.look_ahead(segments.nonzero, segments.exponents, stride, np.uint32(KEY_NONE), self._mine)
        self._slots[:, at.KEYS : at.KEYS + lease.columns] = self._mine[:stride].reshape(count, lease.columns)
        self._sums = np.zeros(0, np.uint32)
        self._has_room = False
        """Whether `_sums` is as long as it must be; that may take milliseconds, in which the opening frames travel."""
        self._agreed = np.full(segments.n_blocks, UNTOUCHED, np.uint8)
        self._data = np.zeros(1, np.uint32)
        self._spans = np.empty((3, 0), np.int64)
        self._answers = np.empty((3, count), np.int64)
        self._counted = [0] * len(_COUNTS)

    @property
    def done(self) -> bool:
        """Whether every slot has its last RESULT."""
        return not self._head[at.OPEN]

    @property
    def slots(self) -> int:
        """How many slots of the lease this collective uses."""
        return len(self._slots)

    def waiting(self, now: float) -> WaitingSlot | None:
        """Return the slot that waits longest; None if none does. May be called from another thread."""
        slots, sent_at = self._slots, self._sent_at
        waiting = np.flatnonzero(slots[: len(sent_at), at.FRAME_BYTES])
        if not len(waiting):
            return None
        oldest = int(waiting[sent_at[waiting].argmin()])
        seen = int(slots[oldest, at.SEEN])
        missing = 0 if seen < 0 else self._lease.full & ~seen
        waited_s = max(0.0, now - float(sent_at[oldest]))
        return WaitingSlot(oldest, int(slots[oldest, at.ROUND]), missing, waited_s, len(waiting))

    def obstacle(self) -> Obstacle:
        """Return why the collective does not go on."""
        slots = self._slots[self._slots[:, at.DONE] == 0][:, [at.SEEN, at.EXPECTED]].tolist()
        open_slots = [(None if seen < 0 else seen, columns) for seen, columns in slots]
        heard = self._head[at.HEARD_FOREIGN : at.HEARD_STALE + 1].tolist()
        foreign, malformed, stale = (a + b for a, b in zip(self._refused_before, heard, strict=True))
        longest = self._head.item(at.LONGEST_RESULT)
        return obstacle(self._lease, open_slots, longest, self.stats, (foreign, malformed, stale))

    @property
    def next_timer(self) -> float | None:
        """When `on_timer` wants to be called next; None once the collective is done."""
        if self.done:
            return None
        return min(self._times.item(at.NEXT_TIMER), self._deadline)

    @property
    def agreed_exponents(self) -> NDArray[np.uint8]:
        """[blocks]: the exponent agreed for each block, UNTOUCHED where no rank held it."""
        return self._agreed

    @property
    def sums(self) -> NDArray[np.int32]:
        """[blocks, block_words]: the words as summed so far, where the segments keep words."""
        return self._sums.view(np.int32).reshape(-1, self._lease.block_words)

    def result(self) -> list[NDArray[Any]]:
        """Return the summed tensors; RuntimeError before `done`, and when a rank refused."""
        if not self.done or self.refusals:
            raise RuntimeError(f"{self.call} {'was refused' if self.refusals else 'is not done'}")
        return self._segments.decode(self._sums, self._agreed, self._lease.block_words)

    def start(self, now: float) -> list[bytes]:
        """Return the opening frame of every slot."""
        self.begin(now)
        self._make_room()
        return self._answer(self._answers, now)

    @property
    def answered_frame(self) -> bytes:
        """The last frame that slot 0 sent; once the collective is done it was answered."""
        frame: bytes = self._frames[0].tobytes()
        return frame[: self._geometry.lengths[frame[2]]]

    def begin(self, now: float) -> None:
        """Do as `start`, but leave the opening frames to the first `run`."""
        self._deadline = now + self._timeout_s
        self._times[at.SMOOTHED : at.GAP + 1] = self._round_trip.numbers
        self._times[at.ANSWERED_AT] = now
        self._kernels.begin_silence(self._head, self._times, now)
        self._answers[:] = 0
        self._answers[0] = range(len(self._slots))
        self._answers[1, 0] = 1 << self._head.item(at.CALL_COLUMN)
        self._head[at.ANSWERS] = len(self._slots)

    def run(self, channel: Channel, until: float) -> list[bytes]:
        """Take part over a socket, until the collective is done or the monotonic clock says `until`.

        Return what the caller has to send. Raises CollectiveError.
        """
        pump, head = channel.pump, self._head
        unsent: list[bytes] = []
        until = min(until, self._deadline)
        event = None
        try:
            if not self._has_room:
                self._pump(channel, 0.0)
                self._make_room()
            while event != pump.PAUSE and not unsent:
                event = self._pump(channel, until)
                if event == pump.RELEASE:
                    self._release(time.monotonic())
                elif event != pump.PAUSE:
                    place = head.item(at.NEXT) - (event != at.CALLS)
                    self._see_to(event, _payload(channel.ring, channel.spans, place), time.monotonic())
                unsent, self._unsent = self._unsent, []
        finally:
            self._take_over_counts()
        now = time.monotonic()
        return unsent + self.on_timer(now) if now >= self._deadline else unsent

    def _pump(self, channel: Channel, until: float) -> int:
        """Send what is to be sent and, until it is `until` or Python is needed, all else; return why it stopped."""
        channel.make_room(len(self._slots))
        event: int = channel.pump.run(
            channel.io,
            channel.to,
            channel.polled,
            channel.vector,
            channel.ring,
            self._head,
            self._times,
            self._slots,
            self._sent_at,
            self._mine,
            self._agreed,
            self._segments.table,
            self._segments.scales,
            self._weights,
            self._segments.elements,
            self._sums,
            self._frames,
            channel.spans,
            self._answers,
            until,
        )
        return event

    def _make_room(self) -> None:
        self._has_room = True
        self._sums = self._segments.make_room(self._lease.block_words)

    def receive(self, frame: bytes, now: float) -> list[bytes]:
        """Take in one datagram; return what to send."""
        return self.receive_burst((frame,), now)

    def receive_burst(self, frames: Iterable[bytes], now: float) -> list[bytes]:
        """Take in several datagrams; return what to send."""
        try:
            self._accept(list(frames), now)
            if self._early and not self._slots[0, at.OPENING]:
                self._release(now)
            unsent, self._unsent = self._unsent, []
            return unsent + self._answer(self._answers, now)
        finally:
            self._take_over_counts()

    def on_timer(self, now: float) -> list[bytes]:
        """Return the frames that were not answered in time, to be sent again.

        CollectiveTimeoutError at the deadline.
        """
        if self.done:
            return []
        if now >= self._deadline:
            raise too_late(self.call, self._timeout_s, self.obstacle())
        due = self._kernels.repeat(self._head, self._times, self._slots, self._sent_at, self._answers, now)
        self._take_over_counts()
        return self._frames_of(self._answers[0, :due])

    def _accept(self, payloads: Sequence[bytes], now: float) -> None:
        head = self._head
        self._load(payloads)
        while True:
            event = self._kernels.accept(
                head,
                self._times,
                self._slots,
                self._sent_at,
                self._mine,
                self._agreed,
                self._segments.table,
                self._segments.scales,
                self._weights,
                self._sums,
                self._data,
                self._spans,
                self._answers,
                now,
            )
            if event == at.END:
                return
            place = head.item(at.NEXT) - (event != at.CALLS)
            self._see_to(event, _payload(self._data, self._spans, place), now)

    def _see_to(self, event: int, payload: bytes, now: float) -> None:
        """Do what `accept` stopped for."""
        index = int.from_bytes(payload[6:8], "big")
        if event == at.CALLS:
            self._compare_calls(payload, now)
        elif event == at.EARLY:
            self._early[index] = payload
            self._head[at.HELD_BACK] = len(self._early)
        else:
            self._count_corrupt(index, payload)

    def _release(self, now: float) -> None:
        """Take in the opening RESULTs that had to wait for slot 0's."""
        early = list(self._early.values())
        self._early.clear()
        self._head[at.HELD_BACK] = 0
        self._accept(early, now)

    def _load(self, payloads: Sequence[bytes]) -> None:
        """Lay the burst's frames out for the kernels, each at a whole word."""
        count = len(payloads)
        if self._spans.shape[1] < count:
            self._spans = np.empty((3, count), np.int64)
        lengths = np.fromiter(map(len, payloads), np.int64, count)
        if (lengths & 3).any():
            payloads = [payload + bytes(-len(payload) % 4) for payload in payloads]
        words = (lengths + 3) >> 2
        np.cumsum(words, out=self._spans[0, :count])
        self._spans[0, :count] -= words
        self._spans[1, :count] = lengths
        self._data = np.frombuffer(b"".join(payloads) or bytes(4), np.uint32)
        self._head[at.FRAMES], self._head[at.NEXT], self._head[at.COMPARED] = count, 0, 0

    def _compare_calls(self, payload: bytes, now: float) -> None:
        calls = read_opening(payload[self._geometry.frame_header_bytes :], self._lease.world_size)
        self.refusals, self.next_window = compare_calls(calls)
        self._head[at.COMPARED] = 1
        if self.refusals:
            self._head[at.REFUSED] = 1
            self._open_all(now)

    def _open_all(self, now: float) -> None:
        """After a refusal: open every slot of the window that this rank has not opened.

        Other ranks may have opened any of them, and a slot's rounds go in lock step: the opening round has to end.
        """
        self.stats.refused += 1
        before = len(self._slots)
        slots, sent_at, frames = self._new_slots(range(before, self._refusal_window))
        slots[:, at.KEYS : at.KEYS + self._lease.columns] = KEY_NONE
        self._slots = np.concatenate([self._slots, slots])
        self._sent_at = np.concatenate([self._sent_at, sent_at])
        self._frames = np.concatenate([self._frames, frames])
        self._answers = np.concatenate([self._answers, np.empty((3, len(slots)), np.int64)], axis=1)
        self._head[at.SLOTS] = len(self._slots)
        self._head[at.OPEN] += len(slots)
        pending = self._head.item(at.ANSWERS)
        opened = np.zeros((3, len(slots)), np.int64)
        opened[0] = range(before, len(self._slots))
        self._head[at.ANSWERS] = len(slots)
        self._unsent += self._answer(opened, now)
        self._head[at.ANSWERS] = pending

    def _answer(self, answers: NDArray[np.int64], now: float) -> list[bytes]:
        """Make the frames of the slots in `answers` and return them."""
        count = self._head.item(at.ANSWERS)
        self._kernels.answer(
            self._head,
            self._times,
            self._slots,
            self._sent_at,
            self._segments.table,
            self._segments.scales,
            self._weights,
            self._segments.elements,
            self._frames,
            answers,
            now,
        )
        return self._frames_of(answers[0, :count])

    def _frames_of(self, indices: NDArray[np.int64]) -> list[bytes]:
        lengths = self._slots[indices, at.FRAME_BYTES].tolist()
        room = 4 * self._frames.shape[1]
        frames = self._frames.data.cast("B")
        starts = (indices * room).tolist()
        return [frames[start : start + length].tobytes() for start, length in zip(starts, lengths, strict=True)]

    def _count_corrupt(self, index: int, payload: bytes) -> None:
        """A RESULT that cannot be right counts as lost.

        CorruptSumError if repeating the contribution changes nothing.
        """
        slot = self._slots[index]
        if not slot[at.CORRUPT_ANSWERS] or payload != self._corrupt[index]:
            self._corrupt[index] = payload
            slot[at.CORRUPT_ANSWERS] = 1
        elif slot[at.TRIES] != slot[at.CORRUPT_TRY]:  # not a copy that the network made
            slot[at.CORRUPT_ANSWERS] += 1
        slot[at.CORRUPT_TRY] = slot[at.TRIES]
        if slot[at.CORRUPT_ANSWERS] >= SAME_CORRUPT_ANSWERS:
            raise CorruptSumError(self._lease.name, index, int(slot[at.ROUND]), int(slot[at.CORRUPT_ANSWERS]))

    def _take_over_counts(self) -> None:
        """Let others see what the kernels counted and measured."""
        stats = self.stats
        counted = self._head[at.ROUNDS : at.BYTES_DOWN + 1].tolist()
        for name, count, before in zip(_COUNTS, counted, self._counted, strict=True):
            if count != before:
                setattr(stats, name, getattr(stats, name) + count - before)
        self._counted = counted
        self._round_trip.numbers = self._times[at.SMOOTHED : at.GAP + 1].tolist()
        if self.done:
            self._rounds[: len(self._slots)] = self._slots[:, at.ROUND].tolist()

    def _new_head(self, call: Sequence[int], count: int) -> NDArray[np.int64]:
        lease, geometry = self._lease, self._geometry
        column, offset = divmod(WORDS_PER_CALL * lease.rank, lease.block_words)
        head = np.zeros(at.HEAD, np.int64)
        head[at.COLUMNS], head[at.BLOCK_WORDS] = geometry.columns, geometry.block_words
        head[at.HEADER_WORDS] = geometry.frame_header_bytes // 4
        head[at.VERSION], head[at.CONTRIBUTE], head[at.RESULT], head[at.PENDING] = (
            WIRE_VERSION,
            CONTRIBUTE,
            RESULT,
            PENDING,
        )
        head[at.JOB], head[at.EPOCH], head[at.FULL] = lease.job_id, lease.epoch, lease.full
        head[at.SECRET_HIGH], head[at.SECRET_LOW] = divmod(lease.secret, 1 << 32)
        head[at.KEY_NONE], head[at.COLUMN_DONE] = KEY_NONE, COLUMN_DONE
        head[at.GROWTH_BLOCKS] = MAX_GROWTH_BYTES // geometry.block_bytes
        head[at.STRIDE], head[at.N_BLOCKS] = geometry.columns * count, self._segments.n_blocks
        head[at.SEGMENTS] = len(self._segments.table)
        head[at.SPARSE] = not self._segments.dense
        head[at.CALL_COLUMN], head[at.CALL_OFFSET] = column, offset
        head[at.CALL_WORDS : at.CALL_WORDS + WORDS_PER_CALL] = call
        head[at.SLOTS] = head[at.OPEN] = count
        head[at.FIRST] = head[at.LAST] = -1
        head[at.QUICK_TRIES] = Recovery.QUICK_TRIES
        head[at.ENCAP] = ENCAP_BYTES
        return head

    def _new_times(self) -> NDArray[np.float64]:
        times = np.zeros(at.TIMES)
        times[at.NEXT_TIMER] = np.inf
        times[at.SHORTEST_SILENCE] = Recovery.SHORTEST_SILENCE_S
        times[at.LONGEST_SILENCE] = min(Recovery.LONGEST_SILENCE_S, self._timeout_s / 4)
        times[at.LONGEST_LATE] = Recovery.LONGEST_SILENCE_S
        times[at.GRANULARITY], times[at.SURPRISE], times[at.INITIAL] = GRANULARITY_S, RoundTrip.SURPRISE, INITIAL_S
        return times

    def _new_slots(self, indices: range) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.uint32]]:
        """Return the arrays of slots that open: their state, when each sent last, and what."""
        count = len(indices)
        slots = np.zeros((count, at.FIELDS), np.int64)
        slots[:, at.ROUND] = self._rounds[indices.start : indices.stop]
        slots[:, at.OPENING] = 1
        slots[:, at.SEEN] = -1
        slots[:, at.FLOORS : at.FLOORS + self._lease.columns] = -1
        return slots, np.zeros(count), np.empty((count, self._geometry.max_frame_bytes // 4), np.uint32)


@functools.cache
def _weights(block_words: int, columns: int) -> NDArray[np.uint32]:
    """Return the check word's weights of a block's words, and then its columns'."""
    words = [weight(0, word) for word in range(block_words)]
    return np.array(words + [pow(COLUMN_FACTOR, column, 1 << 32) for column in range(columns)], np.uint32)


def _payload(data: NDArray[np.uint32], spans: NDArray[np.int64], place: int) -> bytes:
    """Return a frame of a burst."""
    start, length = spans[:2, place].tolist()
    return data[start : start + (length + 3 >> 2)].tobytes()[:length]
