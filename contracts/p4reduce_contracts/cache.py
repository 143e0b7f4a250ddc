"""The folder for what can be made again: compiled code, and locks around the making."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def cache_folder() -> Path | None:
    """Return the folder, made if need be; None when there is none that is this user's alone.

    It is $P4REDUCE_CACHE_DIR, or p4reduce in $XDG_CACHE_HOME, or in ~/.cache. What lies there is run as code, so a
    folder that belongs to somebody else, or that others can write, is not used.
    """
    named = os.environ.get("P4REDUCE_CACHE_DIR")
    try:
        folder = Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "p4reduce"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except (OSError, RuntimeError):  # a read-only home, or none
        return None
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or not os.access(folder, os.W_OK):
        return None
    return folder
