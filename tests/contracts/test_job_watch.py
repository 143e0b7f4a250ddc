"""A member's watch whose call meets an error that nobody expected."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from p4reduce_contracts.jobs.watch import Watch
from p4reduce_runtime import threads
from rigs.limits import LIMIT_S


class Events(list[Any]):
    """A call that delivers these, and raises those that are exceptions."""

    def __iter__(self) -> Iterator[Any]:
        for event in super().__iter__():
            if isinstance(event, Exception):
                raise event
            yield event

    def cancel(self) -> None:
        pass


@pytest.mark.fault("a watch meets an unexpected error: it is logged, and the reset that follows is delivered")
@pytest.mark.parametrize("fails", ["the call", "its events", "what is called"])
def test_a_watch_goes_on_after_an_unexpected_error(
    fails: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(threads, "_AGAIN_S", 0.0)
    reset, error = SimpleNamespace(reset=True, reason="the switch restarted"), ZeroDivisionError()
    calls = [Events([error]), Events([reset])] if fails == "its events" else [Events([reset])]
    errors = [] if fails == "its events" else [error]
    told: list[str] = []
    delivered = threading.Event()

    def call() -> Events:
        if fails == "the call" and errors:
            raise errors.pop()
        return calls.pop(0)

    def on_reset(reason: str) -> None:
        told.append(reason)
        delivered.set()
        if errors:
            raise errors.pop()

    watch = Watch(call, on_reset)
    assert delivered.wait(LIMIT_S)
    watch.close()
    assert not watch._thread.is_alive() and told == ["the switch restarted"]
    assert caplog.messages == ["the thread p4reduce-watch failed"]
