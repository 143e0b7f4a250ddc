"""Where numba finds a compiled kernel and puts it: one file a kernel, and a lock while a process compiles.

Numba's own cache (`cache=True`, tried with 0.68) unpickles its files as it finds them: an empty or cut index or data
file is an exception when the module is imported, every time; one flipped bit ends the process in LLVM; and code in a
file of another user runs. Here `cache.read` decides which file is used. Loading takes no lock. A kernel that is not
there is compiled under the lock of its module, so that of processes that start at once one compiles it and the
others load it, however long that takes, or compile other modules. A process holds one lock at a time, for one kernel.
The lock of a process that is stopped meanwhile is replaced, by one of those that wait.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import pickle
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from p4reduce_runtime import cache

if TYPE_CHECKING:
    from numba.core.cpu import CPUContext

STALLED_S: Final = 60.0
"""Seconds to wait for a lock while no kernel is compiled. Then its holder, such as a stopped process, is passed."""
_LOOK_EVERY_S: Final = 0.05


class KernelCache:
    """One kernel's file and lock; numba's dispatcher calls it as it calls a `numba.core.caching.Cache`.

    Used as a context manager around the compilation: at its end the lock is free.
    """

    def __init__(self, path: Path, lock: Path, *, allocates: bool) -> None:
        """`allocates`: the kernel calls numba's runtime, which allocates arrays."""
        self._path, self._lock_path, self._allocates = path, lock, allocates
        self._lock: int | None = None
        self.cache_path = str(path.parent)
        """The path that the dispatcher's `stats` shows."""

    def __enter__(self) -> KernelCache:
        return self

    def __exit__(self, *error: object) -> None:
        self._unlock()

    def load_overload(self, signature: object, target_context: CPUContext) -> Any:
        """Return the compiled kernel; None when numba has to compile it, which it may do under the lock then."""
        if self._allocates:
            from numba.core.runtime.nrt import rtsys

            rtsys.initialize(target_context)  # 20 MB; `refresh` takes 0.4 s and 60 MB, with scipy's
        found = self._load(target_context)
        if found is None and cache.why_not_kept() is None:  # where files are written that a waiter can load
            self._lock = _acquire(self._lock_path)
            found = self._load(target_context)  # another process may have compiled it meanwhile
        return found

    def save_overload(self, signature: object, compiled: Any) -> None:
        """Keep what numba has compiled, unless it is bound to this process."""
        if any(not loop.can_cache for loop in compiled.lifted) or compiled.library.has_dynamic_globals:
            return
        from numba.core import serialize

        try:
            functions = compiled.library._final_module.functions
            called = [each.name for each in functions if each.is_declaration and each.name.startswith("_ZN")]
            content = serialize.dumps((called, *compiled._reduce()))
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
        try:
            called, *compiled = pickle.loads(content)
            if not all(map(target_context.codegen()._engine.is_symbol_defined, called)):
                return None  # a separate kernel was compiled again, and has another name: LLVM would end the process
            return _rebuilt(target_context, *compiled)
        except Exception as error:  # whatever unpickling raises
            cache.say_unread(self._path, f"{type(error).__name__}: {error}")
            return None

    def _unlock(self) -> None:
        if self._lock is not None:
            with contextlib.suppress(OSError):
                fcntl.flock(self._lock, fcntl.LOCK_UN)  # closing is not enough: a forked child may have it open
            os.close(self._lock)
            self._lock = None


def separate(library: Any) -> None:
    """Leave a compiled kernel's code out of its callers': the loader finds the loaded kernel by its name."""
    from llvmlite import binding

    library._get_module_for_linking = functools.partial(binding.parse_assembly, "")


def _rebuilt(target_context: CPUContext, library: Any, described: Any, *others: Any) -> Any:
    """Return a compiled kernel from what numba's `_reduce` returned.

    Its LLVM bitcode, which takes half a MB of memory when it is parsed, is left until a kernel that calls it has to be
    compiled. Meanwhile numba has empty functions of the names that the machine code defines.
    """
    from llvmlite import binding
    from numba.core import compiler

    name, kind, (machine_code, bitcode) = library
    names = described.llvm_func_name, described.llvm_cpython_wrapper_name
    empty = binding.parse_assembly("".join(f'define void @"{each}"() {{ ret void }}\n' for each in names))
    without = name, kind, (machine_code, empty.as_bitcode())
    compiled: Any = compiler.CompileResult._rebuild(target_context, without, described, *others)
    compiled.library._get_module_for_linking = functools.cache(functools.partial(binding.parse_bitcode, bitcode))
    return compiled


def _acquire(path: Path) -> int | None:
    """Return the descriptor of the lock, however long others compile; None where it cannot be had."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            cache.say_unkept(path, error.strerror)
            return None
        try:
            _wait_for(descriptor, path)
            if _is_at(descriptor, path):
                os.utime(descriptor)  # for those that wait: a holder that goes on
                return descriptor
        except OSError:  # a file system without locks
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # another process has passed its holder: the lock is a new file


def _wait_for(descriptor: int, path: Path) -> None:
    """Wait until the lock is had, or another file is in its place; what for is logged once. Raises OSError."""
    seen, since = os.fstat(descriptor).st_mtime_ns, time.monotonic()
    while _is_at(descriptor, path):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            cache.say_once(
                "waiting",
                f"waiting while another process compiles kernels ({path}): once on this machine, up to a minute on two "
                "cores; `p4reduce warm` does it ahead",
            )
        time.sleep(_LOOK_EVERY_S)
        changed, now = os.fstat(descriptor).st_mtime_ns, time.monotonic()
        if changed != seen:
            seen, since = changed, now
        elif now - since > STALLED_S and _is_at(descriptor, path):
            cache.say_once("passed", f"the process that holds {path} has not compiled anything for {STALLED_S:g} s")
            path.unlink()


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False
