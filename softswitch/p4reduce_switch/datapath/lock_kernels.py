"""Sequentially consistent access to the words of `FairLock`."""

from __future__ import annotations

from typing import Any

from p4reduce_runtime.kernels import kernel
from p4reduce_switch.datapath.addresses import Words, address_of, exchange_word, load_shared_word
from p4reduce_switch.fair_lock import IDLE, REQUESTS, WAITERS


@kernel("boolean(int64[::1])")
def request(lock: Words) -> Any:
    """Request the lock; return whether the loop is idle, and so will return to Python before it continues."""
    base = address_of(lock)
    exchange_word(base + 8 * REQUESTS, lock[REQUESTS] + 1)
    exchange_word(base + 8 * WAITERS, 1)
    return load_shared_word(base + 8 * IDLE) == 1
