"""The last step of every teardown: end and delete whatever a testbed left, even one that was killed.

Everything a testbed makes carries its mark: processes in their environment, links in their alias, named
network namespaces in their name. A guardian process waits until the testbed has closed its pipe, on purpose
or by dying, and then sweeps all that bears the mark. This file is run by itself, with the standard library
alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

MARK = "P4REDUCE_TESTBED"
"""The environment variable of every process of a testbed."""
NAMESPACES = Path("/run/netns")
_GRACE_S = 3.0
_KILL_S = 5.0
_COMMAND_S = 20.0
_POLL_S = 0.02


def new_mark() -> str:
    """A mark that no other testbed has; short enough for names."""
    return secrets.token_hex(4)


def alias(mark: str) -> str:
    """What links of the testbed have as alias."""
    return f"p4reduce-testbed {mark}"


def namespace(mark: str, host: str) -> str:
    """The name of a host's network namespace, where it has one."""
    return f"p4r-{mark}-{host}"


def sweep(mark: str) -> list[str]:
    """End and delete everything that bears the mark. Returns what there was to do, in words."""
    found = [f"process {pid}" for pid in _end_processes(mark)]
    for name in links(mark):
        found.append(f"link {name}")
        _ip("link", "delete", name)
    for name in _namespaces(mark):
        found.append(f"namespace {name}")
        _ip("netns", "delete", name)
    return found


def _end_processes(mark: str) -> list[int]:
    """SIGTERM, and SIGKILL to those that do not heed it. Returns the processes there were."""
    first = left = processes(mark)
    for number, limit_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _KILL_S)):
        deadline = time.monotonic() + limit_s
        signalled: set[int] = set()
        while left and time.monotonic() < deadline:
            for pid in set(left) - signalled:  # new ones may be born meanwhile
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
                signalled.add(pid)
            time.sleep(_POLL_S)
            left = processes(mark)
    return first


def processes(mark: str) -> list[int]:
    """The running processes that were started with the mark in their environment."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone meanwhile
            if wanted in (entry / "environ").read_bytes().split(b"\0") and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


def links(mark: str) -> list[str]:
    """The links on this machine that bear the mark."""
    with contextlib.suppress(ValueError):  # not JSON: `ip` failed
        found = json.loads(_ip("-json", "link"))
        return [link["ifname"] for link in found if link.get("ifalias") == alias(mark)]
    return []


def _namespaces(mark: str) -> list[str]:
    return [path.name for path in NAMESPACES.glob(namespace(mark, "*"))] if NAMESPACES.is_dir() else []


def _ip(*arguments: str) -> str:
    """What `ip` printed; nothing if it failed."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = ["ip", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S, check=False).stdout
    return ""


@contextlib.contextmanager
def guarded(mark: str) -> Iterator[None]:
    """While the body runs, and after it, a guardian process waits to sweep up.

    The body's end, however it comes, waits for the sweep; the death of this process starts it just as well.
    """
    guardian = subprocess.Popen(
        [sys.executable, "-I", __file__, mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C and a closed terminal are not for it
        text=True,
    )
    assert guardian.stdin is not None and guardian.stdout is not None
    try:
        guardian.stdout.readline()  # it stands guard
        yield
    finally:
        guardian.stdin.close()
        guardian.wait(_GRACE_S + _KILL_S + 10 * _COMMAND_S)
        guardian.stdout.close()


def main() -> None:
    """The guardian."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    print("guarding", flush=True)
    sys.stdin.read()  # until the testbed ends
    sweep(sys.argv[1])


if __name__ == "__main__":
    main()
