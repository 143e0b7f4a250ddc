"""The folder for compiled code, which can be made again at any time: the rule for it, and its files.

What is in it is run as code. So each folder on the way to it, each symbolic link on that way, the folder itself and the
files in it have to belong to the effective user or to root, and no other user may be able to write them. A folder that
others can write is accepted on the way if its sticky bit is set, as that of /tmp: others cannot rename or remove what
is not theirs there. The path is resolved and checked from the root down, so that no other user can change a part of it
that was checked.

Files are written whole or not at all, and carry a digest of their name and their content: a file that was cut, damaged
or put under another name is not used. No fault of the cache stops a program: `read` and `write` log the first of each
kind, with path and reason, and the program compiles.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import secrets
import shutil
import stat
import time
from pathlib import Path
from typing import Final

from p4reduce_runtime.environment import P4REDUCE_CACHE_DIR

_log = logging.getLogger(__name__)

MOST_BYTES: Final = 512 << 20
"""Bytes that `prune` leaves in the folder at most."""
UNUSED_S: Final = 14 * 86400.0
"""Seconds without use after which `prune` removes a file or folder."""
_LEFT_OVER_S: Final = 3600.0
"""A temporary file of this age is left over from a process that ended while it wrote."""
_DIGEST_BYTES: Final = 32
_ADVICE: Final = f"set {P4REDUCE_CACHE_DIR} to a folder that only this user can write"
_MOST_LINKS: Final = 40
"""Symbolic links on the way to the folder, as many as Linux follows."""

_said: dict[str, str] = {}
"""The text that this process has logged, by kind."""


class UnusableCacheError(Exception):
    """There is no folder, or no file, that may be used; the message has its path and the reason."""


def usable_folder() -> Path:
    """Return the path of the folder, without symbolic links; make it if it is missing.

    It is $P4REDUCE_CACHE_DIR, or p4reduce in $XDG_CACHE_HOME, or in ~/.cache. Raises UnusableCacheError.
    """
    named = P4REDUCE_CACHE_DIR.read()
    try:
        folder = Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "p4reduce"
        return safe_folder(folder.absolute())
    except (RuntimeError, UnusableCacheError) as error:  # Path.home() raises RuntimeError
        raise UnusableCacheError(f"{error}; {_ADVICE}") from error
    except OSError as error:
        raise UnusableCacheError(f"{error.filename or folder}: {error.strerror}; {_ADVICE}") from error


def cache_folder() -> Path | None:
    """Return `usable_folder`; None where there is none, which is logged."""
    try:
        return usable_folder()
    except UnusableCacheError as error:
        say_no_folder(error)
        return None


def say_no_folder(error: UnusableCacheError) -> None:
    """Log that there is no folder."""
    say_once("no folder", f"compiled code is not kept, and is compiled at each start: {error}")


def safe_folder(path: Path) -> Path:
    """Return this absolute path without symbolic links, once each part of it is checked; make missing folders.

    Raises UnusableCacheError where another user could change what is found there, and OSError.
    """
    at, links = Path(os.sep), 0
    _check(at, os.lstat(at), sticky=True)
    parts = list(reversed(path.parts[1:]))
    while parts:
        part = parts.pop()
        if part == os.pardir:
            at = at.parent
            continue
        entry = at / part
        with contextlib.suppress(FileExistsError):
            if not os.path.lexists(entry):
                os.mkdir(entry, 0o700)
        found = os.lstat(entry)
        if stat.S_ISLNK(found.st_mode):
            _check_owner(entry, found)
            links += 1
            if links > _MOST_LINKS:
                raise UnusableCacheError(f"{path}: too many symbolic links")
            target = Path(os.readlink(entry))
            if target.is_absolute():
                at = Path(os.sep)
            parts.extend(reversed([part for part in target.parts if part != os.sep]))
            continue
        if not stat.S_ISDIR(found.st_mode):
            raise UnusableCacheError(f"{entry}: it is not a folder")
        _check(entry, found, sticky=True)
        at = entry
    _check(at, os.lstat(at), sticky=False)
    return at


def read(path: Path) -> bytes | None:
    """Return the data that `write` wrote; None when there is no file, or it must not be used (logged)."""
    try:
        with open(path, "rb", opener=_open_itself) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise UnusableCacheError(f"{path}: it is not a file")
            _check(path, found, sticky=False)
            data = file.read()
        if data[:_DIGEST_BYTES] != _digest(path, data[_DIGEST_BYTES:]):
            raise UnusableCacheError(f"{path}: it is damaged, or belongs under another name")
    except FileNotFoundError:
        return None
    except OSError as error:
        say_unread(path, "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror)
        return None
    except UnusableCacheError as error:
        say_unread(path, str(error).removeprefix(f"{path}: "))
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # the time of its last use
    return data[_DIGEST_BYTES:]


def write(path: Path, content: bytes) -> None:
    """Write the data to the file, whole or not at all; an error is logged."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        try:
            with open(temporary, "xb", opener=_open_itself) as file:
                file.write(_digest(path, content))
                file.write(content)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        say_unkept(path, error.strerror)


def prune(folder: Path) -> None:
    """Remove what was not used for `UNUSED_S`, the longest unused above `MOST_BYTES`, and leftover temporary files."""
    with contextlib.suppress(OSError):
        _prune(folder, time.time())


def _prune(folder: Path, now: float) -> None:
    kept = []
    for path in (*folder.glob("*.tmp"), *folder.glob("kernels-*/*.tmp")):
        with contextlib.suppress(OSError):
            if now - path.lstat().st_mtime > _LEFT_OVER_S:
                path.unlink()
    for path in (*folder.glob("kernels-*"), *folder.glob("executor-*.o")):
        with contextlib.suppress(OSError):
            kept.append((path.lstat().st_mtime, _bytes(path), path))
    total = 0
    for used, size, path in sorted(kept, reverse=True):
        total += size
        if now - used > UNUSED_S or total > MOST_BYTES:
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def say_unread(path: Path, reason: str | None) -> None:
    """Log that a file is not used."""
    say_once("unread", f"compiled again, since what was kept cannot be used: {path}: {reason}")


def say_unkept(path: Path, reason: str | None) -> None:
    """Log that something compiled cannot be kept."""
    say_once("unkept", f"compiled code is not kept, and is compiled at each start: {path}: {reason}")


def why_not_kept() -> str | None:
    """Return what was logged of the first thing that could not be kept; None while all could be."""
    return _said.get("no folder") or _said.get("unkept")


def say_once(kind: str, text: str) -> None:
    """Log the first warning of its kind: a program has forty kernels, which all have the same problem."""
    if _said.setdefault(kind, text) is text:
        _log.warning("%s", text)


def _open_itself(path: str, flags: int) -> int:
    """Open a file, and not what a link in its place leads to; do not wait for the other end of a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)


def _digest(path: Path, content: bytes) -> bytes:
    digest = hashlib.sha256(f"{path.name}\n".encode())
    digest.update(content)
    return digest.digest()


def _check(path: Path, found: os.stat_result, *, sticky: bool) -> None:
    """Raise UnusableCacheError if a user other than the effective one and root could write this.

    `sticky`: of a folder on the way the sticky bit is enough.
    """
    _check_owner(path, found)
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not (sticky and found.st_mode & stat.S_ISVTX):
        raise UnusableCacheError(f"{path}: other users can write it (mode {stat.S_IMODE(found.st_mode):o})")


def _check_owner(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (0, os.geteuid()):
        raise UnusableCacheError(
            f"{path}: it belongs to user {found.st_uid}, and this process runs as user {os.geteuid()}"
        )


def _bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else (path,)
    return sum(file.lstat().st_size for file in files)
