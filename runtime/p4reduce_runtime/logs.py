"""Logs: one line an event, with its fields by name, for people (`job created job=train slots=0..3`) or as JSON.

A program that runs as a process calls `configure` once; a library only logs. Secrets have no field:
`event` refuses the names of secrets.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, TextIO

LEVELS: Final = ("debug", "info", "warning", "error")
SECRET_FIELDS: Final = frozenset(
    {"secret", "secrets", "nonce", "token", "tokens", "owner_token", "member_token", "owner_lock", "member_lock", "key"}
)
LOG_EVERY_S: Final = 10.0
"""Seconds between two log lines of `RateLimitedLog` about one kind of event."""
_MOST_KINDS = 1024

Field = str | int | float | bool | None


def event(log: logging.Logger, level: int, name: str, /, **fields: Field) -> None:
    """Log the event `name`, such as "job created". Raises ValueError for a field that would show a secret."""
    if secret := SECRET_FIELDS & fields.keys():
        raise ValueError(f"a log must not show {', '.join(sorted(secret))}")
    if log.isEnabledFor(level):
        log.log(level, "%s", name, extra={"p4reduce_fields": fields})


class RateLimitedLog:
    """Rate-limits log lines that remote peers can trigger: each kind at most once in `every_s` seconds.

    The field `times` says how often it happened since its last line, this time included. Thread-safe.
    """

    def __init__(
        self, log: logging.Logger, every_s: float = LOG_EVERY_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._every_s = every_s
        self._clock = clock
        self._lock = threading.Lock()
        self._kinds: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()  # last line, times since then

    def event(self, level: int, name: str, kind: str = "", /, **fields: Field) -> None:
        """Log the event `name` unless one of the same `kind` was logged a moment ago; see `logs.event`."""
        now = self._clock()
        with self._lock:
            last, times = self._kinds.get((name, kind), (-self._every_s, 0))
            due = now - last >= self._every_s
            self._kinds[name, kind] = (now, 0) if due else (last, times + 1)
            while len(self._kinds) > _MOST_KINDS:
                self._kinds.popitem(last=False)
        if due:
            event(self._log, level, name, **fields, times=times + 1)


def configure(level: str = "info", as_json: bool = False, stream: TextIO | None = None) -> None:
    """Write the logs of this process from `level` on, one of LEVELS, to `stream` (None: stderr).

    A process that has handlers of its own keeps them.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLine() if as_json else PlainLine())
    logging.basicConfig(level=level.upper(), handlers=[handler])


class PlainLine(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO p4reduce_controller.registry.registry: job created job=train`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record in one line, and the lines of its exception, if there is one."""
        fields = "".join(f" {name}={_plain(value)}" for name, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname} {record.name}: {_printable(record.getMessage())}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonLine(logging.Formatter):
    """One JSON object: time (UTC), level, logger, event, fields; and exception, where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record in one line."""
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            "fields": _fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _fields(record: logging.LogRecord) -> dict[str, Field]:
    fields: dict[str, Field] = getattr(record, "p4reduce_fields", {})
    return fields


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _plain(value: Field) -> str:
    """A value without spaces as it is, another one in quotes."""
    text = str(value)
    return text if text.isprintable() and text and not set(text) & set(' "=') else json.dumps(text)


def _printable(text: str) -> str:
    """The text without line breaks and control characters, which could pass for lines of their own."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
