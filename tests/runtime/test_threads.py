"""What an unexpected error does to a daemon thread."""

from __future__ import annotations

import pytest

from p4reduce_runtime import threads
from p4reduce_runtime.threads import DaemonThread
from rigs.limits import LIMIT_S


@pytest.mark.fault("a thread of the product meets an error that nobody expected: it is logged, and the thread goes on")
@pytest.mark.parametrize("goes_on", [True, False])
def test_an_error_is_logged_and_the_thread_goes_on_or_what_depends_on_it_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, goes_on: bool
) -> None:
    monkeypatch.setattr(threads, "_AGAIN_S", 0.0)
    errors, calls = [ValueError("first"), ValueError("second")], []

    def work() -> None:
        calls.append(len(errors))
        if errors:
            raise errors.pop(0)

    failed: list[Exception] = []
    thread = DaemonThread(work, "example", failed=None if goes_on else failed.append)
    thread.start()
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    assert (calls, list(map(str, failed))) == (([2, 1, 0], []) if goes_on else ([2], ["first"]))
    assert caplog.messages == ["the thread example failed"], "once in a while"
    assert "ValueError: first" in caplog.text
