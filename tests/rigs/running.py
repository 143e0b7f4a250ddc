"""Which processes run, for tests of what is left behind."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def with_text(text: str) -> dict[int, str]:
    """Return the command lines, by id, of processes with `text` in it, in the environment, or in an open path."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if int(entry.name) != os.getpid() and any(text.encode() in words for words in _words(entry)):
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return found


def _words(entry: Path) -> Iterator[bytes]:
    yield (entry / "cmdline").read_bytes()
    yield (entry / "environ").read_bytes()
    for file in (entry / "fd").iterdir():
        yield os.fsencode(os.readlink(file))


def is_running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
