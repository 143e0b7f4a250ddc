"""The two sides of the lock's words, in an order that all processors see: see `FairLock`."""

from __future__ import annotations

from typing import Any

from p4reduce_runtime.kernels import kernel
from p4reduce_switch.fair_lock import CLAIMS, IDLE, WANTED
from p4reduce_switch.pump.addresses import address_of, exchange_word, load_shared_word


@kernel("boolean(int64[::1])")
def claim(lock: Any) -> Any:
    """Want the lock; return whether the loop is idle, and will go back to Python before it goes on."""
    base = address_of(lock)
    exchange_word(base + 8 * CLAIMS, lock[CLAIMS] + 1)
    exchange_word(base + 8 * WANTED, 1)
    return load_shared_word(base + 8 * IDLE) == 1
