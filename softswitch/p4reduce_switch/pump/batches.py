"""What all loops have in common: running a batch on, and putting its results in order. For kernels alone."""

from __future__ import annotations

from typing import Any

from numba.extending import register_jitable

from p4reduce_switch import pump
from p4reduce_switch.fair_lock import CLAIMS, IDLE, WANTED
from p4reduce_switch.program import batch as words
from p4reduce_switch.pump import ACTIVE, EVENT_DUE, HEAD, NEXT, SENT, TAIL, Reason
from p4reduce_switch.pump.addresses import address_of, call_function, exchange_word, load_shared_word

EVENT, NO_ROOM = int(Reason.EVENT), int(Reason.NO_ROOM)
RESULTS, NOTHING_LEFT = -1, -2
TURN_US = 20_000
"""How long a loop works on end before it goes back to Python, which must look at signals."""
IDLE_MS = 1000


@register_jitable
def run_on(loop: Any, batch: Any, now: Any) -> Any:
    """Run more of the batch, all its results being sent; return a `Reason` to leave, RESULTS or NOTHING_LEFT."""
    loop[SENT], batch[words.FRAMES_OUT], batch[words.BYTES_OUT] = 0, 0, 0
    if loop[EVENT_DUE] != 0:
        loop[EVENT_DUE] = 0
        return EVENT
    if batch[words.TAKEN] == batch[words.FRAMES]:
        batch[words.FRAMES], batch[words.TAKEN] = 0, 0
        return NOTHING_LEFT
    batch[words.NOW_US] = now - loop[pump.STARTED_US]
    stopped = call_function(loop[pump.FUNCTION], address_of(batch))
    loop[EVENT_DUE] = stopped == words.EVENT
    return NO_ROOM if stopped == words.FULL and batch[words.FRAMES_OUT] == 0 else RESULTS


@register_jitable
def link(order: Any, index: Any, port: Any, active: Any) -> Any:
    """Put a result behind the others of its port; return how many ports have results by now."""
    order[NEXT, index] = -1
    if order[HEAD, port] == 0:
        order[HEAD, port], order[ACTIVE, active] = index + 1, port
        active += 1
    else:
        order[NEXT, order[TAIL, port]] = index
    order[TAIL, port] = index
    return active


@register_jitable
def become_idle(lock: Any) -> Any:
    """Do without the lock from now on; return whether it was wanted just before."""
    exchange_word(address_of(lock) + 8 * IDLE, 1)
    return load_shared_word(address_of(lock) + 8 * WANTED) != 0


@register_jitable
def may_go_on(lock: Any, claims: Any) -> Any:
    """Have the lock again, after having been idle; return False if others have it, or have had it since."""
    exchange_word(address_of(lock) + 8 * IDLE, 0)
    wanted = load_shared_word(address_of(lock) + 8 * WANTED)
    return wanted == 0 and load_shared_word(address_of(lock) + 8 * CLAIMS) == claims
