"""Child processes: each writes a log, and all of them end with the program that started them, also after SIGKILL.

`Children` ends them in order when its block ends. A reaper process (reaper.py) ends what is left: descendants of
a child that had to be killed, and all of them when the program itself is killed.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType

from p4reduce_lab.errors import LabError
from p4reduce_lab.reaper import reaped

POLL_S = 0.05
GRACE_S = 10.0
"""Seconds that a child may take to end after SIGTERM before it is killed."""
_TAIL_LINES = 15
P4REDUCE = (sys.executable, "-m", "p4reduce_contracts")
"""The `p4reduce` command, by this interpreter."""


class ProcessError(LabError):
    """A child process failed; the message names it and shows the end of its log."""


class Child:
    """One child process with its output in a file."""

    def __init__(self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(env),
                start_new_session=True,  # Ctrl-C reaches the parent alone; it ends its children in order
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status; None while it runs."""
        return self._process.poll()

    def failure(self, what: str) -> ProcessError:
        """Return an error about this child that shows the end of its log."""
        lines = self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        tail = "\n".join(f"  | {line}" for line in lines) or "  | (nothing)"
        return ProcessError(f"{self.name} {what}; the end of {self.log}:\n{tail}")

    def check_running(self) -> None:
        """Raise ProcessError if it has ended, whatever its status."""
        if self.status is not None:
            raise self.failure(f"ended with status {self.status}")

    def wait_ready(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Wait until `ready()`. Raises ProcessError if the child ends first or the time is up."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            self.check_running()
            if time.monotonic() >= deadline:
                raise self.failure(f"was not ready after {timeout_s:g} s")
            time.sleep(POLL_S)

    def wait_line(self, pattern: str, timeout_s: float) -> re.Match[str]:
        """Wait until `pattern` is found in its log, such as in a line that names ports. Raises as `wait_ready` does."""
        found: list[re.Match[str]] = []

        def look() -> bool:
            found.extend(re.finditer(pattern, self.log.read_text(errors="replace")))
            return bool(found)

        self.wait_ready(look, timeout_s)
        return found[0]

    def wait(self, timeout_s: float) -> None:
        """Wait until it has ended. Raises ProcessError if it has not by then."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise self.failure(f"still runs after {timeout_s:g} s") from None

    def stop(self) -> None:
        """End it: SIGTERM, and SIGKILL if it has not ended after GRACE_S."""
        self._process.terminate()  # nothing, if it has ended
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(GRACE_S)


class Children:
    """A program's children: `with Children(folder) as children: children.start(...)` ends them all.

    Every process that is started in the block, by `start` or otherwise, has `mark` in its environment.
    """

    def __init__(self, logs: Path) -> None:
        """`logs`: the folder of their logs."""
        self.logs = logs
        self.mark = ""
        self._children: list[Child] = []
        self._reaped = reaped()

    def start(self, name: str, command: Sequence[str], env: Mapping[str, str] | None = None) -> Child:
        """Start a process, its output in `<name>.log`; `env` is added to this process's own."""
        log = self.logs / f"{name.replace(' ', '-')}.log"
        child = Child(name, command, log, {**os.environ, **(env or {})})
        self._children.append(child)
        return child

    def stop(self) -> None:
        """End those that still run, the last one first: workers before the controller, then the switch."""
        while self._children:
            self._children.pop().stop()

    def __enter__(self) -> Children:
        self.mark = self._reaped.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            self._reaped.__exit__(kind, error, trace)


def follow(
    children: Sequence[Child],
    on_line: Callable[[int, str], None],
    check: Callable[[], None] = lambda: None,
    *,
    timeout_s: float | None = None,
    stall_s: float | None = None,
) -> None:
    """Call `on_line(number, line)` for each line that one of the children writes, until all have ended with status 0.

    `check` is called between, and may raise. Raises ProcessError when a child fails, when `timeout_s` is over, and when
    no child has written a line for `stall_s`.
    """
    began = moved = time.monotonic()
    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context(child.log.open("rb")) for child in children]
        rests = [b""] * len(children)
        while True:
            statuses = [child.status for child in children]  # before the logs: nothing written is missed
            for number, (log, status) in enumerate(zip(logs, statuses, strict=True)):
                *lines, rests[number] = (rests[number] + log.read()).split(b"\n")
                if status is not None and rests[number]:  # the last line, without its end
                    lines, rests[number] = [*lines, rests[number]], b""
                for line in lines:
                    moved = time.monotonic()
                    on_line(number, line.decode(errors="replace"))
            for child, status in zip(children, statuses, strict=True):
                if status:
                    raise child.failure(f"failed with status {status}")
            running = [child for child, status in zip(children, statuses, strict=True) if status is None]
            if not running:
                return
            check()
            now = time.monotonic()
            if timeout_s is not None and now - began > timeout_s:
                raise running[0].failure(f"still ran after {timeout_s:g} s")
            if stall_s is not None and now - moved > stall_s:
                raise running[0].failure(f"wrote nothing for {stall_s:g} s")
            time.sleep(POLL_S)


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Turn SIGTERM into KeyboardInterrupt, so that a terminated program ends its children as well.

    SIGINT too, even where a shell started the process with SIGINT ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
