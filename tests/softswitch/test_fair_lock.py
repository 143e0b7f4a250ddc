"""The switch's lock: given in the order in which it was asked for, and reentrant as a Condition needs it."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from p4reduce_switch.fair_lock import FairLock

LIMIT_S = 10.0


def until(lock: FairLock, waiting: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while lock.wanted[0] != waiting:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_whoever_waits_comes_before_the_holder_comes_again() -> None:
    lock, order = FairLock(), []

    def take(name: str) -> None:
        with lock:
            order.append(name)

    lock.acquire()
    threads = []
    for number, name in enumerate("abc", 1):
        threads.append(threading.Thread(target=take, args=(name,)))
        threads[-1].start()
        until(lock, number)
    lock.release()
    take("holder again")
    for thread in threads:
        thread.join(LIMIT_S)
    assert order == ["a", "b", "c", "holder again"]
    assert lock.wanted[0] == 0


def test_it_says_when_somebody_begins_to_wait() -> None:
    told = threading.Event()
    lock = FairLock(told.set)
    with lock:
        assert not told.is_set()
        thread = threading.Thread(target=lambda: lock.acquire() and lock.release())
        thread.start()
        assert told.wait(LIMIT_S)
    thread.join(LIMIT_S)


def test_it_can_be_acquired_more_than_once() -> None:
    lock, entered = FairLock(), threading.Event()
    thread = threading.Thread(target=lambda: (lock.acquire(), entered.set(), lock.release()))
    with lock:
        with lock:
            thread.start()
            until(lock, 1)
        assert not entered.is_set(), "it was released once, and acquired twice"
    assert entered.wait(LIMIT_S)
    thread.join(LIMIT_S)
    with pytest.raises(RuntimeError):
        lock.release()


def test_a_condition_waits_on_it_however_often_it_was_acquired() -> None:
    lock: Any = FairLock()
    condition, seen = threading.Condition(lock), threading.Event()

    def notify() -> None:
        with condition:
            seen.set()
            condition.notify()

    with condition, condition:
        thread = threading.Thread(target=notify)
        thread.start()
        assert condition.wait(LIMIT_S)
        assert seen.is_set()
    thread.join(LIMIT_S)
    with condition:
        assert not condition.wait(0.001)


def test_who_gives_up_waiting_holds_up_nobody() -> None:
    """As when a signal handler raises while a thread waits."""
    lock, told = FairLock(), threading.Event()
    lock.acquire()
    thread = threading.Thread(target=lambda: lock.acquire() and told.set() or lock.release())
    turn = threading.Lock()
    lock._queue.append((threading.get_ident(), turn))
    thread.start()
    until(lock, 2)
    lock._give_up(threading.get_ident(), turn)
    assert lock.wanted[0] == 1
    lock.release()
    assert told.wait(LIMIT_S)
    thread.join(LIMIT_S)
    lock._owner, lock._depth = threading.get_ident(), 1  # its turn came just before it gave up
    lock._give_up(threading.get_ident(), turn)
    with lock:
        assert lock.wanted[0] == 0
