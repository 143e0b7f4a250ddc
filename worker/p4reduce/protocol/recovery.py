"""Which frames to send again, and when: loss detection as in RFC 8985 (RACK-TLP) and RFC 9002. Kernels.

A frame that has no RESULT is lost, or its RESULT is, or the switch waits for other ranks: for a frame of theirs that
was lost, or because they are late. Time alone cannot distinguish these, and late ranks are most frequent. Order can.
Every rank sends the slots' frames in the order in which their last RESULTs came, and paths mostly keep the order, so
the switch finishes the slots' rounds in that order too. A RESULT for a frame that was sent *after* one still in flight
therefore means a loss. Each transmission has a packet number, in the order of sending. Hence two rules:

loss time   A frame is sent again when one of a larger packet number was acknowledged by a RESULT, and it is older than
            that one was then, and a reordering window. The window is for paths that reorder, a quarter of that time,
            and for ranks that do not send in the same order after a loss: the time in which that many frames are
            usually acknowledged as are in flight now. A retransmitted frame gets a new packet number, but its RESULT
            may be for what was sent first (retransmission ambiguity). So it is evidence only against others that were
            sent again: else one spurious retransmission would make all that left in between look lost, and so on. Of
            frames whose loss is ambiguous in this way one is sent again, as a probe, when they are older than the
            retransmission timeout: the last of them, whose RESULT shows which of the others are lost. Until a RESULT
            comes the next probe waits twice as long, and so on.
probe       When no RESULT has come for the probe timeout (PTO), loss looks the same as late ranks, or as a switch
timeout     that is kept waiting by its machine. Then the frame that was sent last is sent again, as a tail loss probe
            (RFC 8985, section 7.3): its RESULT shows which of the others are lost. At each further probe timeout two
            frames are, and no more (RFC 9002, section 6.2.4), those before it, and so on, so that in the end each is.
            The PTO doubles until a RESULT comes. There is no more than one probe while no RESULT has come in this
            collective, for then most likely a rank has not begun. Until slot 0 has its opening RESULT its frame is the
            first probe: every rank opens slot 0, but a rank that refuses opens no other, so no other frame can show
            that this one is lost.

The order is kept by each switch for itself: with several side by side, each has packet numbers and timers of its own.
So a loss in the middle of a burst is repaired after about one more round trip, however long the ranks wait for each
other, and one at the end of a collective after a probe timeout. A PENDING shows that the switch has the frame and waits
for other ranks; the rank then sends half as often, for the RESULT may be lost on its way down.
"""

from __future__ import annotations

import numpy as np

from p4reduce.protocol.lookahead import look_ahead
from p4reduce.protocol.state import UNTOUCHED, Engine, Loss, NextFrame, Path, Slot
from p4reduce.protocol.timing import (
    FAST_RETRANSMITS,
    GRANULARITY_S,
    INITIAL_RTO_S,
    MAX_DEVIATION,
    MAX_LOSS_DELAY_S,
    MIN_PTO_S,
)
from p4reduce_runtime.kernels import kernel
from p4reduce_runtime.records import Table


@kernel()
def retransmission_timeout(path: Path) -> float:
    """Return how long a round takes at most (RFC 6298, section 2)."""
    if np.isnan(path.smoothed_rtt):
        return INITIAL_RTO_S
    return path.smoothed_rtt + max(GRANULARITY_S, 4 * path.rttvar)


@kernel()
def restart_pto(loss: Loss, path: Path, now: float) -> None:
    """Wait a whole probe timeout for the next RESULT."""
    loss.pto_count = 0
    loss.pto = min(max(MIN_PTO_S, 2 * retransmission_timeout(path)), loss.max_pto)
    loss.pto_at = now + loss.pto


@kernel()
def restart_ptos(engine: Engine, now: float) -> None:
    """Do so for each switch."""
    for number in range(len(engine.loss)):
        restart_pto(engine.loss[number], engine.path[number], now)


@kernel(separate=True)
def begin(engine: Engine, now: float) -> None:
    """Give the slots their keys and rounds, and begin to wait for the first RESULT."""
    config, state, slots, blocks = engine.config[0], engine.state[0], engine.slots, len(engine.agreed)
    state.begins = False
    config.sparse = look_ahead(engine.nonzero, engine.exponents, config.stride, engine.keys) != blocks
    state.published = 0 if len(engine.published) else blocks
    for block in range(blocks):
        engine.agreed[block] = UNTOUCHED
    for index in range(len(slots)):
        slots[index].round_number = engine.rounds[index]
    for index in range(state.slots):
        for column in range(config.columns):
            slots[index].keys[column] = engine.keys[index * config.columns + column]
    for number in range(len(engine.loss)):
        engine.loss[number].last_result_at = now
    restart_ptos(engine, now)


@kernel()
def take_out(loss: Loss, slots: Table[Slot], index: int) -> None:
    """Take a slot out of the list of frames in flight."""
    slot = slots[index]
    if slot.previous < 0:
        loss.oldest = slot.next
    else:
        slots[slot.previous].next = slot.next
    if slot.next < 0:
        loss.newest = slot.previous
    else:
        slots[slot.next].previous = slot.previous
    slot.in_flight = False
    loss.in_flight -= 1


@kernel()
def on_frame_sent(loss: Loss, slots: Table[Slot], index: int, now: float) -> None:
    """Give the frame that a slot sends now a packet number, and wait for its RESULT."""
    slot = slots[index]
    if slot.in_flight:
        take_out(loss, slots, index)
    loss.largest_sent += 1
    slot.packet_number = loss.largest_sent
    slot.sent_at = now
    slot.previous = loss.newest
    slot.next = -1
    slot.in_flight = True
    if loss.newest < 0:
        loss.oldest = index
    else:
        slots[loss.newest].next = index
    loss.newest = index
    loss.in_flight += 1


@kernel()
def add_sample(path: Path, rtt: float, interval: float) -> None:
    """Update the estimates by a round of `rtt`, whose RESULT came `interval` after the one before (RFC 6298)."""
    if np.isnan(path.smoothed_rtt):
        path.smoothed_rtt = rtt
        path.rttvar = rtt / 2
        path.min_rtt = rtt
        path.result_interval = interval
        return
    path.min_rtt = min(path.min_rtt, rtt)
    deviation = min(rtt - path.smoothed_rtt, MAX_DEVIATION * max(path.rttvar, GRANULARITY_S))
    path.rttvar += (abs(deviation) - path.rttvar) / 4
    path.smoothed_rtt += deviation / 8
    path.result_interval += (interval - path.result_interval) / 8


@kernel()
def on_result(loss: Loss, path: Path, slots: Table[Slot], index: int, now: float) -> None:
    """Update loss detection and the estimates by a RESULT; once only for one that was held back."""
    slot = slots[index]
    if not slot.in_flight:
        return
    take_out(loss, slots, index)
    loss.largest_acked_any = max(loss.largest_acked_any, slot.packet_number)
    if slot.packet_number > loss.largest_acked and not slot.renumbered:
        rtt = now - slot.sent_at
        if slot.retransmits == 0 and not slot.opening:  # the opening waits for late ranks, and is no sample of the path
            add_sample(path, rtt, now - loss.last_result_at)
        loss.largest_acked = slot.packet_number
        loss.latest_rtt = rtt
    loss.last_result_at = now
    loss.ambiguous_wait = 0.0
    restart_pto(loss, path, now)


@kernel()
def is_ambiguous(loss: Loss, slot: Slot) -> bool:
    """Return whether only retransmitted frames were acknowledged after this one, which was not renumbered."""
    return not slot.renumbered and slot.packet_number > loss.largest_acked


@kernel()
def loss_time(loss: Loss, path: Path, slot: Slot) -> float:
    """Return the time at which a frame that later ones passed is sent again; ambiguous frames one at a time."""
    if is_ambiguous(loss, slot):
        return max(slot.sent_at + retransmission_timeout(path), loss.ambiguous_until)
    rtt = max(loss.latest_rtt, path.min_rtt)
    queue = loss.in_flight * path.result_interval
    delay = rtt + max(max(GRANULARITY_S, rtt / 4), min(rtt, queue))
    doublings = max(0, slot.retransmits - FAST_RETRANSMITS)
    if slot.seen >= 0:
        doublings += 1
    return slot.sent_at + min(delay * float(1 << min(doublings, 60)), MAX_LOSS_DELAY_S)


@kernel()
def set_loss_detection_timer(loss: Loss, path: Path, slots: Table[Slot]) -> None:
    """Set `timer_at` (RFC 9002, SetLossDetectionTimer)."""
    index = loss.oldest
    timer_at = np.inf if index < 0 else loss.pto_at
    while index >= 0 and slots[index].packet_number <= loss.largest_acked_any:
        timer_at = min(timer_at, loss_time(loss, path, slots[index]))
        index = slots[index].next
    loss.timer_at = timer_at


@kernel(separate=True)
def find_lost(  # noqa: PLR0917
    loss: Loss, path: Path, slots: Table[Slot], found: Table[NextFrame], opens: bool, now: float
) -> int:
    """Put the slots of a switch whose frames are to be sent again into `found`; return how many.

    `opens`: whether slot 0 is one of them and waits for its opening RESULT.
    """
    count, ambiguous = 0, -1
    index = loss.oldest
    while index >= 0 and slots[index].packet_number <= loss.largest_acked_any:
        if loss_time(loss, path, slots[index]) <= now:
            if is_ambiguous(loss, slots[index]):
                ambiguous = index
            else:
                found[count].slot = index
                count += 1
        index = slots[index].next
    for i in range(count):
        slots[found[i].slot].retransmits += 1
        slots[found[i].slot].renumbered = True
        on_frame_sent(loss, slots, found[i].slot, now)
    if count == 0 and ambiguous >= 0:
        found[0].slot = ambiguous
        count = 1
        slots[ambiguous].retransmits += 1  # it keeps its packet number
        wait = 2 * loss.ambiguous_wait if loss.ambiguous_wait > 0 else retransmission_timeout(path)
        loss.ambiguous_wait = min(wait, MAX_LOSS_DELAY_S)
        loss.ambiguous_until = now + loss.ambiguous_wait
    if count == 0 and now >= loss.pto_at and loss.in_flight > 0:
        probes = min(2 if loss.largest_acked > 0 and loss.pto_count > 0 else 1, loss.in_flight)
        if opens:
            found[0].slot = 0
            count = 1
        retransmits = 0
        while count < probes:  # those sent again least often, and of these the latest first
            index = loss.newest
            while index >= 0 and count < probes:
                if slots[index].retransmits == retransmits and not (opens and index == 0):
                    found[count].slot = index
                    count += 1
                index = slots[index].previous
            retransmits += 1
        for i in range(count):
            slots[found[i].slot].retransmits += 1  # it keeps its packet number: its RESULT shows what is lost before it
        loss.pto_count += 1
        loss.pto = min(2 * loss.pto, loss.max_pto)
        loss.pto_at = now + loss.pto
    return count


@kernel()
def set_loss_detection_timers(engine: Engine) -> None:
    """Set `timer_at` for each switch."""
    for number in range(len(engine.loss)):
        set_loss_detection_timer(engine.loss[number], engine.path[number], engine.slots)


@kernel()
def next_timer(engine: Engine) -> float:
    """Return the earliest `timer_at`."""
    timer_at = np.inf
    for number in range(len(engine.loss)):
        timer_at = min(timer_at, engine.loss[number].timer_at)
    return timer_at


@kernel(separate=True)
def on_loss_detection_timeout(engine: Engine, now: float) -> int:
    """Return how many slots' frames are to be sent again, the first in `contributions` (OnLossDetectionTimeout)."""
    count = 0
    for number in range(len(engine.loss)):
        opens = number == 0 and engine.slots[0].opening and engine.slots[0].in_flight
        found = engine.contributions[count:]
        count += find_lost(engine.loss[number], engine.path[number], engine.slots, found, opens, now)
    engine.stats[0].retransmissions += count
    set_loss_detection_timers(engine)
    return count
