"""Shared by the loops: running a batch, and chaining its results by port. For kernels only."""

from __future__ import annotations

from typing import Any

from numba.extending import register_jitable

from p4reduce_switch import datapath
from p4reduce_switch.datapath import ACTIVE, EVENT_DUE, HEAD, NEXT, SENT, TAIL, Reason
from p4reduce_switch.datapath.addresses import Words, address_of, call_function, exchange_word, load_shared_word
from p4reduce_switch.fair_lock import IDLE, REQUESTS, WAITERS
from p4reduce_switch.program import batch as words

EVENT, NO_ROOM = int(Reason.EVENT), int(Reason.NO_ROOM)
SEND_RESULTS, BATCH_DONE = -1, -2
MAX_RUN_US = 20_000
"""How long a loop runs before it returns to Python, which handles signals."""
IDLE_MS = 1000


@register_jitable
def run_batch(loop: Words, batch: Words, now: int) -> Any:
    """Run more of the batch; all results must be sent. Return a `Reason` to return, SEND_RESULTS or BATCH_DONE."""
    loop[SENT], batch[words.FRAMES_OUT], batch[words.BYTES_OUT] = 0, 0, 0
    if loop[EVENT_DUE] != 0:
        loop[EVENT_DUE] = 0
        return EVENT
    if batch[words.FRAMES_RUN] == batch[words.FRAMES]:
        batch[words.FRAMES], batch[words.FRAMES_RUN] = 0, 0
        return BATCH_DONE
    batch[words.NOW_US] = now - loop[datapath.STARTED_US]
    stopped = call_function(loop[datapath.FUNCTION], address_of(batch))
    loop[EVENT_DUE] = stopped == words.EVENT
    return NO_ROOM if stopped == words.FULL and batch[words.FRAMES_OUT] == 0 else SEND_RESULTS


@register_jitable
def append_result(order: Words, index: int, port: int, active: int) -> Any:
    """Append a result to the chain of its port; return the number of ports with results."""
    order[NEXT, index] = -1
    if order[HEAD, port] == 0:
        order[HEAD, port], order[ACTIVE, active] = index + 1, port
        active += 1
    else:
        order[NEXT, order[TAIL, port]] = index
    order[TAIL, port] = index
    return active


@register_jitable
def enter_idle(lock: Words) -> Any:
    """Set IDLE; return whether the lock has waiters."""
    exchange_word(address_of(lock) + 8 * IDLE, 1)
    return load_shared_word(address_of(lock) + 8 * WAITERS) != 0


@register_jitable
def leave_idle(lock: Words, requests: int) -> Any:
    """Clear IDLE; return False if other threads hold the lock, wait for it, or have requested it since."""
    exchange_word(address_of(lock) + 8 * IDLE, 0)
    waiters = load_shared_word(address_of(lock) + 8 * WAITERS)
    return waiters == 0 and load_shared_word(address_of(lock) + 8 * REQUESTS) == requests
