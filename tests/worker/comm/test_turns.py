"""Turns: in order, with a deadline, and in order too after an interrupt at any place."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from p4reduce import turns as module
from p4reduce.turns import Turns
from rigs.limits import LIMIT_S


def interrupted(function: Callable[[], object], at: int) -> bool:
    """Whether `function` got a KeyboardInterrupt, at the at-th place of turns.py where the interpreter looks
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


def take(turns: Turns, timeout_s: float) -> bool:
    return turns.hold(timeout_s, lambda in_time: in_time)


def test_an_interrupt_at_any_place_loses_no_turn() -> None:
    for at in itertools.count():
        turns = Turns()
        hit = interrupted(lambda turns=turns: take(turns, 0), at)  # type: ignore[misc]
        assert take(turns, 0), f"place {at}: the line is stuck"
        if not hit:
            break
    assert at > 5, "nothing was interrupted: the test tests nothing"


def test_an_interrupt_while_waiting_loses_no_turn() -> None:
    for at in itertools.count():
        turns = Turns()
        hit = turns.hold(0, lambda _: interrupted(lambda: take(turns, 0.001), at))  # noqa: B023
        assert take(turns, 0), f"place {at}: the line is stuck"
        if not hit:
            break
    assert at > 5, "nothing was interrupted: the test tests nothing"


def test_turns_are_in_order_without_those_cancelled() -> None:
    turns, order = Turns(), []

    def wait(number: int) -> None:
        turns.hold(10, lambda in_time: order.append((number, in_time)))

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(4)]

    def first(in_time: bool) -> None:
        assert in_time
        for number, thread in enumerate(threads):
            thread.start()
            while len(turns._line) < number + 2:
                pass  # until it is in the line
            assert not take(turns, 0.001)

    turns.hold(0, first)
    for thread in threads:
        thread.join(LIMIT_S)
    assert order == [(number, True) for number in range(4)]


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("inf")])
def test_a_free_turn_is_granted_whatever_the_timeout(timeout_s: float) -> None:
    assert take(Turns(), timeout_s)
