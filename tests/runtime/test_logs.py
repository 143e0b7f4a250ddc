"""Logs: what a line looks like, what never stands in one, and how often input from the network can cause one."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator

import pytest

from p4reduce_runtime import logs

LOG = logging.getLogger("p4reduce_runtime.test_logs")


@pytest.fixture
def written() -> Iterator[Callable[[bool], io.StringIO]]:
    """Configure the logs into a string, in place of pytest's own handlers, which it sets anew for each phase."""
    root = logging.getLogger()
    level = root.level

    def configure(as_json: bool) -> io.StringIO:
        root.handlers.clear()
        stream = io.StringIO()
        logs.configure("info", as_json, stream)
        return stream

    yield configure
    for handler in list(root.handlers):
        if isinstance(handler.formatter, logs.PlainLine | logs.JsonLine):
            root.removeHandler(handler)
    root.setLevel(level)


def test_a_line_for_people(written: Callable[[bool], io.StringIO]) -> None:
    stream = written(False)
    logs.event(LOG, logging.INFO, "job reset", job="train", cause="rank 1 left", ranks=2)
    logs.event(LOG, logging.DEBUG, "not at this level")
    time, rest = stream.getvalue().split(" ", 1)
    assert time.endswith("Z")
    assert rest == 'INFO p4reduce_runtime.test_logs: job reset job=train cause="rank 1 left" ranks=2\n'


def test_a_line_of_json(written: Callable[[bool], io.StringIO]) -> None:
    stream = written(True)
    logs.event(LOG, logging.WARNING, "job reset", job="train", cause="rank 1 left", ranks=2)
    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "warning",
        "logger": "p4reduce_runtime.test_logs",
        "event": "job reset",
        "fields": {"job": "train", "cause": "rank 1 left", "ranks": 2},
    }


@pytest.mark.parametrize("as_json", [False, True])
def test_a_logged_value_cannot_begin_a_line(written: Callable[[bool], io.StringIO], as_json: bool) -> None:
    stream = written(as_json)
    forged = "x\n2026-01-31T12:00:00.000Z INFO p4reduce: job removed\r\x1b[2J"
    logs.event(LOG, logging.INFO, "call refused", detail=forged)
    LOG.warning("a message with %s", forged)
    assert len(stream.getvalue().splitlines()) == 2
    assert "\x1b" not in stream.getvalue()


def test_an_exception_is_logged_with_its_traceback(written: Callable[[bool], io.StringIO]) -> None:
    stream = written(True)
    try:
        raise ZeroDivisionError("of the test")
    except ZeroDivisionError:
        LOG.exception("failed")
    assert "ZeroDivisionError: of the test" in json.loads(stream.getvalue())["exception"]


@pytest.mark.parametrize("name", sorted(logs.SECRET_FIELDS))
def test_a_secret_as_a_field_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"a log must not show {name}"):
        logs.event(LOG, logging.INFO, "lease granted", **{name: 1})


def test_a_flood_is_logged_once_in_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    rate_limited_log = logs.RateLimitedLog(LOG, 10.0, lambda: now)
    caplog.set_level(logging.INFO)
    for _ in range(1000):
        rate_limited_log.event(logging.INFO, "datagram refused", "no HELLO")
    rate_limited_log.event(logging.INFO, "datagram refused", "no free port")
    now = 10.0
    rate_limited_log.event(logging.INFO, "datagram refused", "no HELLO")
    assert [record.__dict__["p4reduce_fields"]["times"] for record in caplog.records] == [1, 1, 1000]
