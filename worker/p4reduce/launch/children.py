"""A program of p4reduce as a child, which ends with this process, however that ends, and leaves no file."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import IO, Any, Final

from p4reduce.errors import JoinError
from p4reduce.timeouts import tries

_log = logging.getLogger(__name__)

_END_S: Final = 5.0
"""Seconds that a child has to end once this process lets it."""
_SHOWN_LINES: Final = 5

_pipes: Final[weakref.WeakSet[IO[Any]]] = weakref.WeakSet()
"""This process's ends of the children's standard inputs: a child ends when its own is closed (tied.py)."""


class Child:
    """`p4reduce ARGUMENTS`, whose output is in memory."""

    def __init__(self, what: str, arguments: Sequence[str], files: Mapping[str, str]) -> None:
        """`what` it is, in errors. `files`: texts by name, in the folder that is "{folder}" in these."""
        self._what = what
        self._log = os.memfd_create("p4reduce-log")
        tied = "-P", "-m", "p4reduce_runtime.tied"  # -P: nothing is imported from the working folder
        self._process = subprocess.Popen(
            [sys.executable, *tied, "p4reduce_contracts", *arguments],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C is for this process, which then ends, or goes on
        )
        assert self._process.stdin is not None
        _pipes.add(self._process.stdin)
        with contextlib.suppress(OSError):  # it has ended: `wait_for` says why
            self._process.stdin.write(json.dumps(files).encode() + b"\n")
            self._process.stdin.flush()

    def wait_for(self, pattern: str, until: float) -> re.Match[str]:
        """Return where its output matches, at the latest when the monotonic clock reaches `until`.

        Raises JoinError with its last lines where it ends before, or takes longer.
        """
        ended = False
        for _ in tries(until - time.monotonic()):
            if found := re.search(pattern, self._output()):
                return found
            if ended:
                break
            ended = self._process.poll() is not None  # then its last output is looked at
        raise JoinError(f"{self._what} {'ended' if ended else 'was not ready in time'}: {self._last_lines()}")

    def close(self) -> None:
        """End it; log its last lines if it has ended before."""
        assert self._process.stdin is not None
        if self._process.poll() is not None and self._log >= 0:
            _log.warning("%s has ended: %s", self._what, self._last_lines())
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with contextlib.suppress(OSError):
            os.close(self._log)
        self._log = -1

    def check_silent(self, pattern: str) -> None:
        """Raise JoinError, with its last lines, where its output so far matches."""
        if re.search(pattern, self._output()) is not None:
            raise JoinError(f"{self._what}: {self._last_lines()}")

    def _last_lines(self) -> str:
        return " | ".join(self._output().splitlines()[-_SHOWN_LINES:]) or "it printed nothing"

    def _output(self) -> str:
        return os.pread(self._log, os.fstat(self._log).st_size, 0).decode(errors="replace")


def _leave_to_parent() -> None:
    null = os.open(os.devnull, os.O_RDWR) if _pipes else -1
    for pipe in _pipes:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(null, pipe.fileno(), inheritable=False)  # not closed: the file object will close the number later
    if null >= 0:
        os.close(null)


os.register_at_fork(after_in_child=_leave_to_parent)
