"""Compiled kernels: functions of plain Python over arrays that numba compiles, once on a machine.

A kernel module has functions marked `@kernel(signature)`, and nothing imports it but `load`. Its plain functions, under
`.py_func`, are the oracle of the compiled ones. Where numba is missing, or the environment has P4REDUCE_KERNELS=off,
`load` returns None and the caller goes the way it goes in Python.

What was compiled is kept in the user's cache folder (`cache.py`). It belongs to this processor and to the sources of
all kernel modules, since one may call another's functions. Processes that start at once, such as the ranks of a job,
do not all compile: the first has a lock, and the others load what it made.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import importlib
import importlib.util
import os
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar, cast

from p4reduce_contracts.cache import cache_folder

MODULES: Final = "p4reduce.kernels"
"""The entry points that name each package's kernel modules."""
_LOCK_WAIT_S: Final = 120.0
"""After so long another process that compiles is not waited for; this one compiles too."""

Function = TypeVar("Function", bound=Callable[..., Any])


def enabled() -> bool:
    """Return whether kernels may be used: numba is installed and P4REDUCE_KERNELS is not "off"."""
    return os.environ.get("P4REDUCE_KERNELS", "on") != "off" and importlib.util.find_spec("numba") is not None


def kernel(signature: str) -> Callable[[Function], Function]:
    """Mark a function that is compiled for these types, such as "void(float32[::1], int64)", when it is defined.

    It runs without the GIL. Overflow wraps, and no index is checked: the caller sees to it that all are inside.
    """
    import numba

    config: Any = numba.config
    njit: Any = numba.njit  # a wrapper for callbacks from C takes time to compile, and nothing needs it

    def compiled(function: Function) -> Function:
        folder, before = _folder(), config.CACHE_DIR
        config.CACHE_DIR = "" if folder is None else str(folder)  # read while the function is defined
        try:
            compiled_as = njit(signature, cache=folder is not None, nogil=True, no_cfunc_wrapper=True)
            return cast(Function, compiled_as(function))
        finally:
            config.CACHE_DIR = before

    return compiled


def load(module: str) -> ModuleType | None:
    """Import a kernel module, compiled; None where kernels are not `enabled`."""
    if not enabled():
        return None
    with _one_at_a_time():
        return importlib.import_module(module)


def warm() -> Iterator[tuple[str, float]]:
    """Compile all kernels of the installed packages; yields each module and the seconds that it took."""
    for entry in sorted(metadata.entry_points(group=MODULES), key=lambda entry: entry.name):
        begun = time.monotonic()
        load(entry.value)
        yield entry.value, time.monotonic() - begun


@functools.cache
def _folder() -> Path | None:
    """For what is compiled of these sources. Numba itself looks at the file alone that a function stands in."""
    cache = cache_folder()
    if cache is None:
        return None
    digest = hashlib.sha256()
    for module in sorted(entry.value for entry in metadata.entry_points(group=MODULES)):
        package, *path = module.split(".")
        spec = importlib.util.find_spec(package)  # of the module itself it would import all that stands above it
        for folder in (spec and spec.submodule_search_locations) or ():
            digest.update(Path(folder, *path).with_suffix(".py").read_bytes())
    return cache / f"kernels-{digest.hexdigest()[:16]}"


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Hold the lock of this user's processes; without a folder for it, or after a long wait, go on without."""
    folder = cache_folder()
    if folder is None:
        yield
        return
    with open(folder / "kernels.lock", "w", encoding="utf-8") as lock:
        _wait_for(lock.fileno(), folder)
        yield


def _wait_for(lock: int, folder: Path) -> None:
    until = time.monotonic() + _LOCK_WAIT_S
    while time.monotonic() < until:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)
        except OSError:  # a file system without locks
            return
        else:
            return
