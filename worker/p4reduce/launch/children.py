"""A program of p4reduce as a child, which ends with this process, however that ends, and leaves no file."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final

from p4reduce.errors import JoinError
from p4reduce.timeouts import tries
from p4reduce_runtime.threads import DaemonThread

_log = logging.getLogger(__name__)

_END_S: Final = 5.0
"""Seconds that a child has to end after SIGTERM."""
_SHOWN_LINES: Final = 5
_KEPT_LINES: Final = 100


class Child:
    """`p4reduce ARGUMENTS`, whose last lines of output are kept; once it is ready they are logged as warnings."""

    def __init__(self, what: str, arguments: Sequence[str], imports: Sequence[str] = ()) -> None:
        """`what` it is, in errors and logs. `imports`: modules that it imports before it waits for `give`."""
        self.what = what
        tied = "-P", "-m", "p4reduce_runtime.tied"  # -P: nothing is imported from the working folder
        command = [sys.executable, *tied, ",".join([*imports, "p4reduce_contracts"]), *arguments]
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._logs = False
        started: Future[subprocess.Popen[bytes]] = Future()
        self._reader = DaemonThread(partial(self._run, command, started), "launch", failed=lambda _: None)
        self._reader.start()
        self._process = started.result()

    def give(self, files: Mapping[str, str]) -> None:
        """Let it begin. `files`: texts by name; "{NAME}" is the path of one in the arguments and in later texts."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended: `wait_for` says why
            self._process.stdin.write(json.dumps(files).encode() + b"\n")

    def wait_for(self, pattern: str, until: float, check: Callable[[], None] = lambda: None) -> re.Match[str]:
        """Return where a line of its output matches, at the latest when the monotonic clock reaches `until`.

        Raises JoinError with its last lines where it ends before, or takes longer; and what `check` raises meanwhile.
        """
        ended = False
        for _ in tries(until - time.monotonic()):
            check()
            if found := self._found(pattern):
                self._logs = True
                return found
            if ended:
                break
            ended = not self._reader.is_alive()  # then its last output is looked at
        raise JoinError(f"{self.what} {'ended' if ended else 'was not ready in time'}: {self._last_lines()}")

    def check_silent(self, pattern: str) -> None:
        """Raise JoinError, with its last lines, where a line of its output so far matches."""
        if self._found(pattern):
            raise JoinError(f"{self.what}: {self._last_lines()}")

    def is_running(self) -> bool:
        """Return whether it has not ended."""
        return self._process.poll() is None

    def mute(self) -> None:
        """Log nothing more of it: it is about to end, and so is what it needs."""
        self._logs = False

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self.mute()
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.terminate()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(_END_S)
        self._process.stdout.close()

    def _run(self, command: Sequence[str], started: Future[subprocess.Popen[bytes]]) -> None:
        """Start it and read its output, on one thread: the kernel ends it with the thread that has started it."""
        try:
            process = subprocess.Popen(
                command,
                bufsize=0,  # a reader of buffers on a thread can stop the end of the interpreter
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for this process, which then ends, or goes on
            )
        except BaseException as error:
            started.set_exception(error)
            return
        started.set_result(process)
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.append(line.decode(errors="replace").rstrip())
            if self._logs:
                _log.warning("%s: %s", self.what, self._lines[-1])
        if self._logs:
            _log.warning("%s has ended", self.what)

    def _found(self, pattern: str) -> re.Match[str] | None:
        return next(filter(None, (re.search(pattern, line) for line in self._lines.copy())), None)

    def _last_lines(self) -> str:
        return " | ".join([*self._lines][-_SHOWN_LINES:]) or "it printed nothing"
