"""The queue of collectives: in order, with a deadline, on the thread that suits, also after an interrupt anywhere."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from p4reduce import collective_queue as module
from p4reduce.collective_queue import CollectiveQueue
from rigs.limits import LIMIT_S


def interrupted(function: Callable[[], object], at: int) -> bool:
    """Whether `function` got a KeyboardInterrupt, at the at-th place of the module where the interpreter looks
    for signals: where a Python function begins and where a C function has returned."""
    places = itertools.count()

    def look(frame: FrameType, event: str, arg: Any) -> None:
        inside = frame.f_code.co_filename == module.__file__ and event in ("call", "c_return")
        if inside and next(places) == at:
            raise KeyboardInterrupt

    sys.setprofile(look)
    try:
        function()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


def begins(queue: CollectiveQueue, timeout_s: float = 0.0) -> bool:
    """Whether a call begins in time."""
    return queue.drain(timeout_s)


CALLS: dict[str, Callable[[CollectiveQueue], object]] = {
    "run": begins,
    "submit to this thread": lambda queue: queue.submit(lambda: None, inline=True),
    "submit": lambda queue: queue.submit(lambda: None),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_interrupt_at_any_place_leaves_the_queue_in_order(name: str) -> None:
    for at in itertools.count():
        queue = CollectiveQueue()
        hit = interrupted(lambda queue=queue: CALLS[name](queue), at)  # type: ignore[misc]
        assert begins(queue, LIMIT_S), f"place {at}: the line is stuck"
        if not hit:
            break
    assert at > 5, "nothing was interrupted: the test tests nothing"


def test_an_interrupt_while_waiting_leaves_the_queue_in_order() -> None:
    held, go_on = threading.Event(), threading.Event()

    def hold() -> bool:
        held.set()
        return go_on.wait(LIMIT_S)

    for at in itertools.count():
        queue = CollectiveQueue()
        held.clear()
        go_on.clear()
        first = queue.submit(hold)
        assert held.wait(LIMIT_S)
        hit = interrupted(lambda queue=queue: begins(queue, 0.001), at)  # type: ignore[misc]
        go_on.set()
        assert first.result()
        assert begins(queue, LIMIT_S), f"place {at}: the line is stuck"
        if not hit:
            break
    assert at > 5, "nothing was interrupted: the test tests nothing"


@pytest.mark.fault("calls of several threads of a rank: one after the other")
def test_calls_come_in_order_without_those_whose_time_was_over() -> None:
    queue, order = CollectiveQueue(), []
    threads, futures = [], []

    def first() -> None:
        for number in range(0, 8, 2):
            waits = threading.Thread(target=queue.run, args=("call", LIMIT_S, order.append, number))
            waits.start()
            threads.append(waits)
            while len(queue._line) < number + 2:
                pass  # until it is in the line
            futures.append(queue.submit(lambda number=number: order.append(number + 1)))  # type: ignore[misc]
            late = threading.Thread(target=lambda: order.append(-1) if begins(queue, 0.001) else None)
            late.start()
            late.join(LIMIT_S)

    queue.run("first", 0.0, first)
    for thread in threads:
        thread.join(LIMIT_S)
    for future in futures:
        future.result()
    assert order == list(range(8))


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("inf")])
def test_a_free_turn_is_granted_whatever_the_timeout(timeout_s: float) -> None:
    assert begins(CollectiveQueue(), timeout_s)


def test_a_call_runs_on_its_callers_thread_only_where_nothing_is_before_it() -> None:
    queue, here = CollectiveQueue(), threading.get_ident()
    assert queue.submit(threading.get_ident, inline=True).result() == here
    assert queue.submit(threading.get_ident).result() != here
    go_on = threading.Event()
    first = queue.submit(lambda: go_on.wait(LIMIT_S))
    behind = queue.submit(threading.get_ident, inline=True)
    assert not behind.done() and not behind.wait(0.001)
    go_on.set()
    assert first.result() and behind.result() != here


def test_a_call_within_another_is_part_of_it() -> None:
    queue, order = CollectiveQueue(), []

    def outer() -> None:
        queue.submit(lambda: order.append("behind"))
        queue.run("inner", 0.0, order.append, "inner")
        queue.submit(lambda: order.append("inner too"), inline=True)
        assert queue.drain(0.0)
        order.append("outer")

    queue.submit(outer).result()
    assert queue.drain(LIMIT_S)
    assert order == ["inner", "inner too", "outer", "behind"]


def test_a_future_has_what_was_returned_or_raised_and_calls_back_once() -> None:
    queue, called = CollectiveQueue(), threading.Semaphore(0)

    def fail() -> None:
        raise ValueError("mine")

    for inline in (False, True):
        failed = queue.submit(fail, inline=inline)
        failed.add_done_callback(lambda: called.release())
        with pytest.raises(ValueError, match="mine"):
            failed.result()
        assert failed.done() and isinstance(failed.exception(), ValueError)
        assert called.acquire(timeout=LIMIT_S) and not called.acquire(blocking=False)
        assert queue.submit(lambda: 3, inline=inline).result() == 3


def test_the_thread_ends_with_the_queue() -> None:
    queue = CollectiveQueue()
    thread = queue.submit(threading.current_thread).result()
    assert queue.submit(threading.current_thread).result() is thread
    behind = queue.submit(lambda: 3)
    del queue
    assert behind.result() == 3, "what was submitted before is run"
    thread.join(LIMIT_S)
    assert not thread.is_alive()


def test_a_callback_that_raises_ends_neither_the_queue_nor_its_thread(caplog: pytest.LogCaptureFixture) -> None:
    queue, gate = CollectiveQueue(), threading.Event()
    future = queue.submit(lambda: gate.wait(LIMIT_S))
    future.add_done_callback(lambda: 1 // 0)
    gate.set()
    assert queue.submit(lambda: 5).wait(LIMIT_S)
    assert "ZeroDivisionError" in caplog.text
