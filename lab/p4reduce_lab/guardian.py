"""The last step of every teardown: end what a program has left running, even a program that was killed.

The processes of a program carry its mark in their environment, and so do all those that these start. A guardian
process waits until the program has closed its pipe, on purpose or by dying, and then ends everything with the mark.
The marks are looked up in /proc: on systems other than Linux the guardian ends nothing.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

MARK = "P4REDUCE_MARK"
"""The environment variable that all processes of a program have."""
MODULE = "p4reduce_lab.guardian"
_READY, _END = "guarding", "end"
_TERM_S = 2.0
_KILL_S = 5.0
_SWEEP_S = 200.0
_POLL_S = 0.02
_BIRTH_S = 0.5


def end_processes(mark: str) -> None:
    """End all processes with the mark: SIGTERM, and SIGKILL to those that still run after 2 s."""
    left = processes(mark)
    for number, limit_s in ((signal.SIGTERM, _TERM_S), (signal.SIGKILL, _KILL_S)):
        deadline = time.monotonic() + limit_s
        signalled: set[int] = set()
        while left and time.monotonic() < deadline:
            for pid in set(left) - signalled:  # new ones may be born meanwhile
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
                signalled.add(pid)
            time.sleep(_POLL_S)
            left = processes(mark)


def processes(mark: str) -> list[int]:
    """Return the ids of the running processes that were started with the mark in their environment."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone meanwhile
            if wanted in (entry / "environ").read_bytes().split(b"\0") and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


@contextlib.contextmanager
def guarded(module: str = MODULE) -> Iterator[str]:
    """Mark every process that is started in the block, and have a guardian end what is left of them after it.

    Yields the mark, which no other program has and which is short enough for names. `module` is what the guardian
    runs: one whose main calls `stand_guard`. The block's end waits for the sweep; the death of this process starts
    it just as well. Raises RuntimeError when the guardian does not start.
    """
    mark, before = secrets.token_hex(4), os.environ.get(MARK)
    guardian = subprocess.Popen(
        [sys.executable, "-P", "-m", module, mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C and a closed terminal are not for it
        env={key: value for key, value in os.environ.items() if key != MARK},  # nor is another guardian's sweep
        text=True,
    )
    assert guardian.stdin is not None and guardian.stdout is not None
    try:
        if guardian.stdout.readline().strip() != _READY:
            raise RuntimeError(f"the guardian process `python -m {module}` did not start")
        os.environ[MARK] = mark
        yield mark
    finally:
        os.environ.pop(MARK, None)
        if before is not None:
            os.environ[MARK] = before
        with contextlib.suppress(BrokenPipeError):  # somebody killed the guardian
            guardian.stdin.write(_END)
            guardian.stdin.close()
        guardian.wait(_SWEEP_S)
        guardian.stdout.close()


def stand_guard(sweep: Callable[[str], None]) -> None:
    """Be the guardian: wait for the end of the program that started this process, then call `sweep(mark)`."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    print(_READY, flush=True)
    in_order = sys.stdin.read() == _END
    sweep(sys.argv[1])
    if not in_order:  # a process that was just being started has the mark only once it runs its own program
        time.sleep(_BIRTH_S)
        sweep(sys.argv[1])


if __name__ == "__main__":
    stand_guard(end_processes)
