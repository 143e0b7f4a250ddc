"""Which process a rank is, and whether it has ended, as far as another one of its machine sees it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def this_process() -> str:
    """Name this process: its machine and PID namespace, its PID there, and its start; "" where /proc hides others."""
    with contextlib.suppress(OSError):
        os.stat("/proc/1")
        return f"{_machine()} {os.getpid()} {_start(os.getpid())}"
    return ""


def has_ended(process: str) -> bool:
    """Return whether a named process has ended; False for one that is not seen from here."""
    if not process or not this_process():
        return False
    machine, pid, start = process.split()
    return machine == _machine() and _start(int(pid)) != start


def _machine() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"


def _start(pid: int) -> str:
    """Return when a process has started, in clock ticks since the boot; "" for one that has ended."""
    try:
        state, *others = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in "ZX" else others[18]
