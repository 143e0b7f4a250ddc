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
import itertools
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar, cast

from p4reduce_contracts.cache import cache_folder
from p4reduce_contracts.checked import ConfigError
from p4reduce_contracts.logs import event

_log = logging.getLogger(__name__)

MODULES: Final = "p4reduce.kernels"
"""The entry points that name each package's kernel modules."""
CONSTANTS: Final = "p4reduce.kernel-constants"
"""Those that name the modules whose constants are compiled into kernels."""
_LOCK_WAIT_S: Final = 120.0
"""After so long another process that compiles is not waited for; this one compiles too."""

_WARM_S: Final = 300.0
_UNUSED_S: Final = 14 * 86400.0
_DONE: Final = "all"
"""A file that says that all kernels of these sources were compiled."""

Function = TypeVar("Function", bound=Callable[..., Any])


class CompilationFailed(RuntimeError):
    """A kernel module cannot be compiled; the message has numba's own words."""


def enabled() -> bool:
    """Return whether kernels may be used: numba is installed and P4REDUCE_KERNELS is not "off".

    Raises ConfigError for another value of it than on and off.
    """
    wanted = os.environ.get("P4REDUCE_KERNELS") or "on"
    if wanted not in ("on", "off"):
        raise ConfigError(f"P4REDUCE_KERNELS is {wanted!r}; it has to be on or off")
    return wanted == "on" and importlib.util.find_spec("numba") is not None


def kernel(signature: str, *, allocates: bool = False) -> Callable[[Function], Function]:
    """Mark a function that is compiled for these types, such as "void(float32[::1], int64)", when it is defined.

    It runs without the GIL. Overflow wraps, and no index is checked: the caller sees to it that all are inside. Only
    one that `allocates` may make arrays: the others do not count references to arrays, which took a sixth of the time
    of a collective. Views are free.
    """
    import numba
    from numba.core.options import DefaultOptions

    config: Any = numba.config
    njit: Any = numba.njit
    options: dict[str, bool] = {"nogil": True, "no_cfunc_wrapper": True}  # callbacks from C: nothing needs them
    if not allocates and hasattr(DefaultOptions, "_nrt"):
        options["_nrt"] = False

    def compiled(function: Function) -> Function:
        folder, before = _folder(), config.CACHE_DIR
        config.CACHE_DIR = "" if folder is None else str(folder)  # read while the function is defined
        try:
            compiled_as = njit(signature, cache=folder is not None, **options)
            return cast(Function, compiled_as(function))
        finally:
            config.CACHE_DIR = before

    return compiled


def load(module: str) -> ModuleType | None:
    """Import a kernel module, compiled; None where kernels are not `enabled`."""
    if not enabled() or not _numba_works():
        return None
    with _one_at_a_time(_package(module)):
        return importlib.import_module(module)


@functools.cache
def _numba_works() -> bool:
    """Return whether the installed numba can be imported: it refuses versions of numpy that it does not know."""
    try:
        importlib.import_module("numba")
    except ImportError as error:
        event(_log, logging.WARNING, "kernels are off", cause=str(error))
        return False
    return True


def warm() -> Iterator[tuple[str, float]]:
    """Compile all kernels of the installed packages that are not compiled; yields each package and its seconds.

    Packages are compiled at the same time, each in a process of its own. Raises CompilationFailed.
    """
    folder = _folder()
    if folder is None or not enabled() or not _numba_works() or (folder / _DONE).exists():
        return
    packages: dict[str, list[str]] = {}
    for module in _modules():
        packages.setdefault(_package(module), []).append(module)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from zip(packages, pool.map(_load_elsewhere, packages.values()), strict=True)
    (folder / _DONE).touch()


def load_alone(modules: list[str]) -> None:
    """Load kernel modules without what the packages above them import: that takes time, and torch may not be there yet.

    For processes that compile and do nothing else: those packages stay empty, but for any that constants come from.
    """
    for package in sorted({_package(module) for module in modules} - set(_modules(CONSTANTS))):
        for above in itertools.accumulate(package.split("."), "{}.{}".format):
            spec = importlib.util.find_spec(above) if above and above not in sys.modules else None
            if spec is not None:
                sys.modules[above] = importlib.util.module_from_spec(spec)
    for module in modules:
        load(module)


def _load_elsewhere(modules: list[str]) -> float:
    """Load these modules in a new process, one after the other; return the seconds that it took."""
    script = "import sys; from p4reduce_contracts import kernels; kernels.load_alone(sys.argv[1:])"
    begun = time.monotonic()
    command = [sys.executable, "-P", "-c", script, *modules]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_WARM_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise CompilationFailed(f"{', '.join(modules)} took more than {_WARM_S:g} s") from error
    if done.returncode:  # negative: the signal that ended it
        said = done.stderr.strip()[-2000:] or "it said nothing"
        ended = f"the compiling process ended with status {done.returncode}"
        raise CompilationFailed(f"{', '.join(modules)} cannot be compiled; {ended}: {said}")
    return time.monotonic() - begun


def _modules(group: str = MODULES) -> list[str]:
    return sorted(entry.value for entry in metadata.entry_points(group=group))


def _package(module: str) -> str:
    return module.rpartition(".")[0]


@functools.cache
def _folder() -> Path | None:
    """For what is compiled of these sources. Numba itself looks at the file alone that a function stands in."""
    cache = cache_folder()
    if cache is None:
        return None
    digest = hashlib.sha256()
    for source in _sources():
        digest.update(source.read_bytes())
    folder = cache / f"kernels-{digest.hexdigest()[:16]}"
    if not folder.exists():
        _remove_unused(cache)
    folder.mkdir(mode=0o700, exist_ok=True)
    with contextlib.suppress(OSError):
        os.utime(folder)  # the time of its last use
    return folder


def _remove_unused(cache: Path) -> None:
    """Remove what was compiled of other sources and not used for long; another installation may still use the rest."""
    for folder in cache.glob("kernels-*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _UNUSED_S:
                shutil.rmtree(folder)


def _sources() -> Iterator[Path]:
    """Yield the sources of all kernels, and of the constants in them, as they are now.

    Of an editable installation the list of modules may be older than the sources; then what is not there is left out,
    and a change of a module that is not in it is not seen: `make` installs again, `pip install -e .` does too.
    """
    for module in (*_modules(), *_modules(CONSTANTS)):
        package, *path = module.split(".")
        spec = importlib.util.find_spec(package)  # of the module itself it would import all that stands above it
        for folder in (spec and spec.submodule_search_locations) or ():
            source = Path(folder, *path)
            source = source / "__init__.py" if source.is_dir() else source.with_suffix(".py")
            if source.exists():
                yield source


@contextlib.contextmanager
def _one_at_a_time(package: str) -> Iterator[None]:
    """Hold a package's lock among this user's processes; without a folder for it, or after a long wait, do without."""
    folder = cache_folder()
    if folder is None:
        yield
        return
    with open(folder / f"{package}.lock", "w", encoding="utf-8") as lock:
        _wait_for(lock.fileno())
        yield


def _wait_for(lock: int) -> None:
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
