"""End all processes that a program has started, also after the program was killed.

The processes of a program have its mark in their environment, and so have all those that these start. A reaper process
waits until the program has closed its pipe, by itself or because it ended, and then ends every process with the mark.
The marks are read from /proc: on systems other than Linux the reaper ends nothing.

PR_SET_PDEATHSIG reaches children only and not what these start; `unshare --pid --kill-child` needs root.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

MARK = "P4REDUCE_MARK"
"""The environment variable that all processes of a program have."""
_MODULE = "p4reduce_lab.reaper"
_READY, _END = "ready", "end"
_TERM_S = 2.0
_KILL_S = 5.0
_POLL_S = 0.02
_EXEC_S = 0.5
_LIMIT_S = 30.0


def end_processes(mark: str) -> None:
    """End all processes with the mark: SIGTERM, and SIGKILL to those that still run after 2 s."""
    left = processes(mark)
    for number, limit_s in ((signal.SIGTERM, _TERM_S), (signal.SIGKILL, _KILL_S)):
        deadline = time.monotonic() + limit_s
        signalled: set[int] = set()
        while left and time.monotonic() < deadline:
            for pid in set(left) - signalled:  # new ones may have been started meanwhile
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
        with contextlib.suppress(OSError):  # ended meanwhile
            if wanted in (entry / "environ").read_bytes().split(b"\0") and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


@contextlib.contextmanager
def reaped() -> Iterator[str]:
    """Mark every process that is started in the block, and have a reaper process end those that outlast it.

    Yields the mark. At the end of the block the reaper is waited for; it also starts when this process ends without
    reaching it, by SIGKILL for example. Raises RuntimeError when the reaper does not start.
    """
    mark, before = secrets.token_hex(4), os.environ.get(MARK)
    reaper = subprocess.Popen(
        [sys.executable, "-P", "-m", _MODULE, mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # it must not get the signals of Ctrl-C and of a closed terminal
        env={key: value for key, value in os.environ.items() if key != MARK},  # an outer block's reaper must not end it
        text=True,
    )
    assert reaper.stdin is not None and reaper.stdout is not None
    try:
        if reaper.stdout.readline().strip() != _READY:
            raise RuntimeError(f"the reaper process `python -m {_MODULE}` did not start")
        os.environ[MARK] = mark
        yield mark
    finally:
        os.environ.pop(MARK, None)
        if before is not None:
            os.environ[MARK] = before
        with contextlib.suppress(BrokenPipeError):  # the reaper was killed
            reaper.stdin.write(_END)
            reaper.stdin.close()
        reaper.wait(_LIMIT_S)
        reaper.stdout.close()


def main() -> None:
    """Wait for the end of the block, or of the program, and end its processes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    print(_READY, flush=True)
    in_order = sys.stdin.read() == _END
    end_processes(sys.argv[1])
    if not in_order:  # a process that was just being forked has the mark only after its exec
        time.sleep(_EXEC_S)
        end_processes(sys.argv[1])


if __name__ == "__main__":
    main()
