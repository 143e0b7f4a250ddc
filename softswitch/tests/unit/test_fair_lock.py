"""The switch's lock: given in the order in which it was asked for, and reentrant as a Condition needs it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from p4reduce_switch.fair_lock import FairLock
from rigs.limits import LIMIT_S, wait_until


def until(lock: FairLock, waiting: int) -> None:
    wait_until(lambda: lock.shared["waiters"][0] == waiting)


def test_waiting_threads_get_the_lock_before_its_last_holder() -> None:
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
    assert lock.shared["waiters"][0] == 0


def request(shared: Any) -> bool:
    """Request the lock as the kernel of that name does."""
    shared["requests"] += 1
    shared["waiters"] = 1
    return bool(shared["idle"][0] == 1)


def test_other_threads_get_the_lock_while_the_loop_is_idle() -> None:
    lock, order = FairLock(), []
    lock.acquire()
    lock.begin_native(request)
    lock.shared["idle"][0] = 1

    def take(name: str, taken: threading.Event, go: threading.Event) -> None:
        with lock:
            taken.set()
            assert go.wait(LIMIT_S)
            order.append(name)

    taken, go = threading.Event(), threading.Event()
    threads = [threading.Thread(target=take, args=("other", taken, go))]
    threads[0].start()
    assert taken.wait(LIMIT_S)
    assert lock.shared.tolist() == [(1, 1, 1, 1)], "the loop sees that it has to go back to Python"
    threads.append(threading.Thread(target=take, args=("third", threading.Event(), go)))
    threads[1].start()
    until(lock, 2)
    threading.Timer(0.01, go.set).start()
    lock.end_native()
    order.append("lender")
    for thread in threads:
        thread.join(LIMIT_S)
    assert order == ["other", "third", "lender"]
    lock.release()


def test_the_loop_continues_with_the_lock_after_other_threads() -> None:
    lock = FairLock()
    lock.acquire()
    lock.begin_native(request)
    lock.shared["idle"][0] = 1
    thread = threading.Thread(target=lambda: lock.acquire() and lock.release())
    thread.start()
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    assert lock.shared["waiters"][0] == 0
    lock.shared["idle"][0] = 0
    thread = threading.Thread(target=lambda: lock.acquire() and lock.release())
    thread.start()
    until(lock, 1)
    lock.end_native()
    assert thread.is_alive(), "the loop had the lock, and its thread has it now"
    lock.release()
    thread.join(LIMIT_S)
    with lock:
        assert lock.shared["waiters"][0] == 0


def test_the_lock_is_reentrant() -> None:
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


def test_a_condition_releases_a_lock_that_was_acquired_several_times() -> None:
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


def test_a_thread_that_gives_up_waiting_does_not_block_others() -> None:
    """A signal handler may raise while a thread waits."""
    lock, told = FairLock(), threading.Event()
    lock.acquire()
    thread = threading.Thread(target=lambda: lock.acquire() and told.set() or lock.release())
    turn = threading.Lock()
    lock._queue.append((threading.get_ident(), turn))
    thread.start()
    until(lock, 2)
    lock._cancel(threading.get_ident(), turn)
    assert lock.shared["waiters"][0] == 1
    lock.release()
    assert told.wait(LIMIT_S)
    thread.join(LIMIT_S)
    lock._owner, lock._depth = threading.get_ident(), 1  # its turn came just before it gave up
    lock._cancel(threading.get_ident(), turn)
    with lock:
        assert lock.shared["waiters"][0] == 0
