"""Where numba finds a compiled kernel and puts it: one file a kernel, and a lock while a process compiles.

Numba's own cache (`cache=True`, tried with 0.68) unpickles its files as it finds them: an empty or cut index or data
file is an exception when the module is imported, every time; one flipped bit ends the process in LLVM; and code in a
file of another user runs. Here `cache.read` decides which file is used. Loading takes no lock. A kernel that is not
there is compiled under the lock of its package, so that of processes that start at once one compiles it and the
others load it. A process holds one lock at a time, for one kernel.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import time
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from p4reduce_runtime import cache

if TYPE_CHECKING:
    from numba.core.cpu import CPUContext

WAIT_S: Final = 20.0
"""How long a process waits for others that compile, over all kernels together. Then it compiles without the lock."""
_LOOK_EVERY_S: Final = 0.05


class Waiting:
    """The waiting for other processes: its limit, and the seconds spent."""

    def __init__(self, most_s: float, whole: Waiting | None = None) -> None:
        """`whole`: the waiting that this is a part of."""
        self._most_s, self._whole = most_s, whole
        self.waited_s = 0.0

    @property
    def left_s(self) -> float:
        """Seconds left, 0 or more."""
        left_s = max(0.0, self._most_s - self.waited_s)
        return left_s if self._whole is None else min(left_s, self._whole.left_s)

    def pause(self) -> None:
        """Wait a little."""
        begun = time.monotonic()
        time.sleep(min(_LOOK_EVERY_S, self.left_s))
        self._spend(time.monotonic() - begun)

    def _spend(self, seconds: float) -> None:
        self.waited_s += seconds
        if self._whole is not None:
            self._whole._spend(seconds)


_waiting = ContextVar("waiting", default=Waiting(WAIT_S))  # noqa: B039  the default is this process's own


@contextlib.contextmanager
def waiting_at_most(seconds: float) -> Iterator[Waiting]:
    """Bound the waiting for other processes within the block; the value has the seconds spent."""
    part = Waiting(seconds, _waiting.get())
    token = _waiting.set(part)
    try:
        yield part
    finally:
        _waiting.reset(token)


class KernelCache:
    """One kernel's file and lock; numba's dispatcher calls it as it calls a `numba.core.caching.Cache`.

    Used as a context manager around the compilation: at its end the lock is free.
    """

    def __init__(self, path: Path, lock: Path) -> None:
        self._path, self._lock_path = path, lock
        self._lock: int | None = None
        self.cache_path = str(path.parent)
        """For the dispatcher's `stats`."""

    def __enter__(self) -> KernelCache:
        return self

    def __exit__(self, *error: object) -> None:
        self._unlock()

    def load_overload(self, signature: object, target_context: CPUContext) -> Any:
        """Return the compiled kernel; None when numba has to compile it, which it may do under the lock then."""
        target_context.refresh()
        found = self._load(target_context)
        if found is None:
            self._lock = _acquire(self._lock_path)
            found = self._load(target_context)  # another process may have compiled it meanwhile
        return found

    def save_overload(self, signature: object, compiled: Any) -> None:
        """Keep what numba has compiled, unless it is bound to this process."""
        if any(not loop.can_cache for loop in compiled.lifted) or compiled.library.has_dynamic_globals:
            return
        from numba.core import serialize

        try:
            content = serialize.dumps(compiled._reduce())
        except Exception as error:  # whatever pickling raises
            cache.say_unkept(self._path, f"{type(error).__name__}: {error}")
        else:
            cache.write(self._path, content)

    def flush(self) -> None:
        """Do nothing: no kernel is compiled again in its process."""

    def _load(self, target_context: CPUContext) -> Any:
        content = cache.read(self._path)
        if content is None:
            return None
        from numba.core import compiler

        try:
            return compiler.CompileResult._rebuild(target_context, *pickle.loads(content))
        except Exception as error:  # whatever unpickling raises
            cache.say_unread(self._path, f"{type(error).__name__}: {error}")
            return None

    def _unlock(self) -> None:
        if self._lock is not None:
            with contextlib.suppress(OSError):
                fcntl.flock(self._lock, fcntl.LOCK_UN)  # closing is not enough: a forked child may have it open
            os.close(self._lock)
            self._lock = None


def _acquire(path: Path) -> int | None:
    """Return the descriptor of the lock; None where it cannot be had, or not in time."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        cache.say_unkept(path, error.strerror)
        return None
    locked = False
    try:
        locked = _wait_for(descriptor, path)
    finally:
        if not locked:
            os.close(descriptor)
    return descriptor if locked else None


def _wait_for(descriptor: int, path: Path) -> bool:
    """Return whether the lock is had before the waiting is over; both are logged once."""
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            held = f"another process compiles kernels and holds {path}"
        except OSError:  # a file system without locks
            return False
        waiting = _waiting.get()
        if waiting.left_s <= 0:
            cache.say_once("waited", f"{held}: this process compiles them too, without waiting longer")
            return False
        cache.say_once("waiting", f"{held}: waiting for it, {waiting.left_s:.1f} s at most")
        waiting.pause()
