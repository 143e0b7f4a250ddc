"""Which frames to send again, and when.

A frame that has no answer is lost, or its answer is, or the switch waits for other ranks: for a frame of theirs that
was lost, or because they are late. Time alone cannot tell these apart, and late ranks are what happens most. Order can.
Every rank sends the slots' frames in the order in which their last RESULTs came, and paths mostly keep the order, so
the switch finishes the slots' rounds in that order too. A RESULT for a frame that was sent *after* one still without
an answer therefore means a loss. Hence two rules:

overtaken   A frame is sent again when a later one was answered, and it is older than that one was then, and a margin.
            The margin is for paths that reorder, a quarter of that time, and for ranks that do not send in the same
            order after a loss: the time in which that many frames are usually answered as are without an answer now.
            A frame that was sent again is later than all that left before it, but its answer may be to what was sent
            first. So it overtakes only others that were sent again: else one needless repetition would make all that
            left in between look lost, and so on. Of these, in doubt, one is sent again, as a probe, when they are older
            than a round takes at most: the last of them, whose answer says which of the others are lost. Until a RESULT
            comes the next one waits twice as long, and so on.
silence     When no RESULT has come for a longer time, nothing tells loss from late ranks, or from a switch that is kept
            waiting by its machine. Then the frame that was sent last is sent again, as a tail loss probe (RFC 8985,
            section 7.3): its RESULT overtakes the others that are lost. After each further silence two frames are, and
            no more (RFC 9002, section 6.2.4), those before it, and so on, so that in the end each is. The silence that
            is waited out doubles until a RESULT comes. There is no more than one probe while no RESULT has come in this
            collective, for then most likely a rank has not begun.

So a loss in the middle of a burst is mended after about one more round trip, however long the ranks wait for each
other, and one at the end of a collective after a silence. Whoever has a PENDING knows that the switch has its frame and
waits for others; it asks half as often, for the RESULT may be lost on its way down.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from p4reduce.protocol.rtt import GRANULARITY_S, RoundTrip
from p4reduce.protocol.slot import SlotState


class Recovery:
    """The unanswered frames of one collective, in the order in which they were sent."""

    SHORTEST_SILENCE_S: Final = 0.005
    LONGEST_SILENCE_S: Final = 1.0
    QUICK_TRIES: Final = 2
    """So often a frame is sent again before the time between two tries doubles."""

    def __init__(self, round_trip: RoundTrip, longest_silence_s: float) -> None:
        """`longest_silence_s`: that is waited out, whatever is known of the path."""
        self._round_trip = round_trip
        self._longest_silence_s = min(self.LONGEST_SILENCE_S, longest_silence_s)
        self._unanswered: dict[int, SlotState] = {}
        self._sent = 0
        self._answered = 0
        """The latest place in the order of sending that has its RESULT; 0: none has."""
        self._answer_took_s = 0.0
        """How long the frame at that place waited for it."""
        self._answered_again = 0
        """The latest place of all that have their RESULT, frames that were sent again included."""
        self._answered_at = 0.0
        self._doubt_s = 0.0
        """How long the last probe for frames in doubt is waited for; 0 when a RESULT came since."""
        self._doubt_until = 0.0
        self._timeouts = 0
        """How many silences ended with a probe since the last RESULT."""
        self._silence_s = 0.0
        self._silent_until = 0.0

    def start(self, now: float) -> None:
        """Begin to wait for the first RESULT."""
        self._answered_at = now
        self._begin_silence(now)

    def sent(self, slot: SlotState, now: float) -> None:
        """Wait for the answer to the frame that the slot sends now."""
        self._sent += 1
        slot.order, slot.sent_at = self._sent, now
        self._unanswered.pop(slot.index, None)
        self._unanswered[slot.index] = slot

    def answered(self, slot: SlotState, now: float) -> None:
        """Take note of a RESULT; of one that was held back and is taken up now, nothing more."""
        if self._unanswered.pop(slot.index, None) is None:
            return
        self._answered_again = max(self._answered_again, slot.order)
        if slot.order > self._answered and not slot.moved:
            took_s = now - slot.sent_at
            if not slot.tries and not slot.opening:  # the opening waits for late ranks, and says nothing of the path
                self._round_trip.sample(took_s, now - self._answered_at)
            self._answered, self._answer_took_s = slot.order, took_s
        self._answered_at = now
        self._doubt_s = 0.0
        self._begin_silence(now)

    @property
    def next_timer(self) -> float | None:
        """When something may have to be sent again; None when all is answered."""
        if not self._unanswered:
            return None
        return min([self._silent_until, *map(self._again_at, self._overtaken())])

    def due(self, now: float) -> list[SlotState]:
        """Return the slots whose frames are to be sent again now."""
        late = [slot for slot in self._overtaken() if self._again_at(slot) <= now]
        due = [slot for slot in late if not self._in_doubt(slot)]
        for slot in due:
            slot.tries += 1
            slot.moved = True
            self.sent(slot, now)
        if late and not due:
            due = late[-1:]
            due[0].tries += 1  # it keeps its place in the order
            self._doubt_s = min(2 * self._doubt_s or self._round_trip.timeout_s, self.LONGEST_SILENCE_S)
            self._doubt_until = now + self._doubt_s
        if now >= self._silent_until and self._unanswered and not due:
            latest = sorted(self._unanswered.values(), key=lambda slot: (slot.tries, -slot.order))
            due = latest[: 2 if self._answered and self._timeouts else 1]
            for slot in due:
                slot.tries += 1  # it keeps its place in the order: its RESULT overtakes all that was sent before it
            self._timeouts += 1
            self._silence_s = min(2 * self._silence_s, self._longest_silence_s)
            self._silent_until = now + self._silence_s
        return due

    def _begin_silence(self, now: float) -> None:
        wanted_s = max(self.SHORTEST_SILENCE_S, 2 * self._round_trip.timeout_s)
        self._timeouts = 0
        self._silence_s = min(wanted_s, self._longest_silence_s)
        self._silent_until = now + self._silence_s

    def _overtaken(self) -> Iterator[SlotState]:
        for slot in self._unanswered.values():
            if slot.order > self._answered_again:
                return
            yield slot

    def _in_doubt(self, slot: SlotState) -> bool:
        """Return whether nothing overtook this frame, sent once, but frames that were sent again."""
        return not slot.moved and slot.order > self._answered

    def _again_at(self, slot: SlotState) -> float:
        """When an overtaken frame is to be sent again; of those in doubt one at a time."""
        if self._in_doubt(slot):
            return max(slot.sent_at + self._round_trip.timeout_s, self._doubt_until)
        return self._late_at(slot)

    def _late_at(self, slot: SlotState) -> float:
        took_s = max(self._answer_took_s, self._round_trip.fastest_s)
        queue_s = len(self._unanswered) * self._round_trip.gap_s
        late_s = took_s + max(GRANULARITY_S, took_s / 4, min(took_s, queue_s))
        doublings = max(0, slot.tries - self.QUICK_TRIES) + (slot.seen is not None)
        return slot.sent_at + min(late_s * (1 << min(doublings, 60)), self.LONGEST_SILENCE_S)
