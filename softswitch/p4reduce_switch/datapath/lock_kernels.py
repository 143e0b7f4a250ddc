"""Sequentially consistent access to the shared state of `FairLock`."""

from __future__ import annotations

from numba.extending import register_jitable

from p4reduce_runtime.datagrams.kernels import address_of, yield_processor
from p4reduce_runtime.kernels import kernel
from p4reduce_runtime.records import Table, dtype_of, offset_of
from p4reduce_switch.datapath.addresses import exchange_word, load_shared_word
from p4reduce_switch.fair_lock import LockState

_WAITERS, _IDLE = offset_of(LockState, "waiters"), offset_of(LockState, "idle")
_REQUESTS, _CLOSED = offset_of(LockState, "requests"), offset_of(LockState, "closed")
_ROW = dtype_of(LockState).itemsize


@kernel()
def request(lock: Table[LockState]) -> bool:
    """Request the lock; return whether the loop is idle, and so will return to Python before it continues."""
    base = address_of(lock)
    exchange_word(base + _REQUESTS, lock[0].requests + 1)
    exchange_word(base + _WAITERS, 1)
    idle: bool = load_shared_word(base + _IDLE) == 1
    return idle


@kernel()
def set_closed(lock: Table[LockState], closed: int) -> None:
    """Set `closed`; if it is 1, return when no helper runs frames."""
    base = address_of(lock)
    exchange_word(base + _CLOSED, closed)
    for helper in range(1, len(lock) if closed else 0):
        while load_shared_word(base + _ROW * helper + _IDLE) == 0:
            yield_processor()


@register_jitable
def enter_helper(lock: Table[LockState], helper: int) -> bool:
    """Clear a helper's `idle`, and return True; or, where helpers are not to run frames, leave it and return False."""
    base = address_of(lock)
    exchange_word(base + _ROW * helper + _IDLE, 0)
    closed: bool = load_shared_word(base + _CLOSED) != 0
    if closed:
        leave_helper(lock, helper)
    return not closed


@register_jitable
def leave_helper(lock: Table[LockState], helper: int) -> None:
    """Set a helper's `idle`."""
    exchange_word(address_of(lock) + _ROW * helper + _IDLE, 1)


@register_jitable
def has_waiters(lock: Table[LockState]) -> bool:
    """Return whether other threads wait for the lock or hold it."""
    waiting: bool = load_shared_word(address_of(lock) + _WAITERS) != 0
    return waiting


@register_jitable
def enter_idle(lock: Table[LockState]) -> bool:
    """Set `idle`; return whether the lock has waiters."""
    exchange_word(address_of(lock) + _IDLE, 1)
    return has_waiters(lock)


@register_jitable
def leave_idle(lock: Table[LockState], requests: int) -> bool:
    """Clear `idle`; return False if other threads hold the lock, wait for it, or have requested it since."""
    exchange_word(address_of(lock) + _IDLE, 0)
    if has_waiters(lock):
        return False
    unchanged: bool = load_shared_word(address_of(lock) + _REQUESTS) == requests
    return unchanged
