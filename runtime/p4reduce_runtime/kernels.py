"""Compiled kernels: functions of plain Python over arrays that numba compiles, once on a machine.

A kernel module has functions marked `@kernel()`. Import kernel modules when they are needed first, not at the top of a
module: the first time on a machine they are compiled.

What was compiled is kept in the user's cache folder (`cache.py`, `kernel_cache.py`). It belongs to this processor, to
the versions of numba and numpy, and to the sources of all kernel modules, since one may call another's functions.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.util
import inspect
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, cast, get_args, get_origin, get_type_hints

import numpy as np

from p4reduce_runtime import cache, kernel_cache, records

MODULES: Final = "p4reduce.kernels"
"""The entry points that name each package's kernel modules."""
CONSTANTS: Final = "p4reduce.kernel-constants"
"""The entry points that name the modules whose constants are compiled into kernels."""
_WARM_S: Final = 1800.0
"""Seconds in which a process compiles a package's kernels at most: a minute on an idle machine."""
_NOT_KEPT: Final = 75
"""Exit status of a process that compiled, and could not keep what it compiled (EX_TEMPFAIL of sysexits.h)."""
_DONE: Final = "all"
"""A file that exists if all kernels of these sources were compiled."""

Function = TypeVar("Function", bound=Callable[..., Any])


class CompilationError(RuntimeError):
    """A kernel module cannot be compiled; the message has numba's own words."""


class NotCachedError(RuntimeError):
    """Compiled code cannot be stored; the message says why and what to do."""


def kernel(*, allocates: bool = False, inline: bool = False, separate: bool = False) -> Callable[[Function], Function]:
    """Mark a function that is compiled for the types of its annotations when it is defined.

    They are numbers of Python (64 bits) or numpy, records and arrays (records.py), and tuples of these, also
    NamedTuples. Raises CompilationError.

    A compiled function runs without the GIL. Overflow wraps, and no index is checked: the caller has to keep all
    inside. Only one that `allocates` may make arrays: the others do not count references to arrays, which took a sixth
    of the time of a collective. Views are free. An `inline` kernel is compiled into each that calls it: a call takes
    every field of every array as an argument, which for a block of 32 words takes as long as the work itself. Any other
    is compiled again with each that calls it, unless it is `separate`, which saves a quarter of all that is compiled.
    """
    numba = import_numba()
    from numba.core.options import DefaultOptions

    options: dict[str, bool] = {"nogil": True, "no_cfunc_wrapper": True}  # callbacks from C: nothing needs them
    if inline:
        options["forceinline"] = True
    if not allocates and hasattr(DefaultOptions, "_nrt"):
        options["_nrt"] = False

    def compiled(function: Function) -> Function:
        dispatcher = numba.njit(**options)(function)
        types = _signature(function)
        with contextlib.ExitStack() as stack:
            kept = _cache_of(function, types, allocates="_nrt" not in options)
            if kept is not None:
                dispatcher._cache = stack.enter_context(kept)  # as Dispatcher.enable_caching does
            dispatcher.compile(types)
        if separate:
            kernel_cache.separate(dispatcher.overloads[types.args].library)
        dispatcher.disable_compile()
        return cast(Function, dispatcher)

    return compiled


def preload(*modules: str) -> None:
    """Import kernel modules now, as the first time on a machine they are compiled, which takes seconds."""
    for module in modules:
        importlib.import_module(module)


def direct(function: Function) -> Function:
    """Return a kernel for callers in Python that give it arguments of exactly its types: they are not looked at.

    For many arrays numba needs 10 us to look at their types, which a collective would spend several times.
    """
    (compiled,) = vars(function)["overloads"].values()
    return cast(Function, compiled.entry_point)


def _signature(function: Callable[..., Any]) -> Any:
    """Return the types of a function's arguments and result, as numba's."""
    *arguments, result = map(_type_of, inspect.get_annotations(function, eval_str=True).values())
    return result(*arguments)


@functools.cache
def _type_of(declared: Any) -> Any:
    """Return numba's type of what is annotated so."""
    import numba
    from numba.np import numpy_support

    types: Any = numba.types
    origin, parts = get_origin(declared), get_args(declared)
    if declared is None:
        return types.void
    if origin is records.Table:
        return types.Array(_type_of(parts[0]), 1, "C")
    if origin is Annotated:
        return types.Array(_type_of(records.element_type(parts[0])), *parts[1])
    if origin is tuple:
        return types.BaseTuple.from_types([_type_of(part) for part in parts])
    if issubclass(declared, tuple):
        fields = [_type_of(field) for field in get_type_hints(declared, include_extras=True).values()]
        return types.BaseTuple.from_types(fields, declared)  # numba has another type for fields that are all alike
    if issubclass(declared, records.Record):
        return numpy_support.from_dtype(records.dtype_of(declared))
    return numpy_support.from_dtype(np.dtype(declared))


def import_numba() -> Any:
    """Return the module numba, which refuses versions of numpy that it does not know. Raises CompilationError."""
    try:
        return importlib.import_module("numba")
    except ImportError as error:
        text = f"numba cannot be imported ({error}); install versions of numba and numpy that fit each other"
        raise CompilationError(text) from error


def warm(processes: int | None = None) -> Iterator[tuple[str, float]]:
    """Compile all kernels of the installed packages that are not compiled; yields each package and its seconds.

    Each in a process of its own, one a core or `processes` at a time. Raises CompilationError and NotCachedError.
    """
    import_numba()
    try:
        done = _made_folder() / _DONE
    except cache.UnusableCacheError as error:
        raise NotCachedError(str(error)) from error
    if done.exists():
        return
    packages: dict[str, list[str]] = {}
    for module in reversed(_modules()):  # a rank that starts meanwhile compiles them from the first on
        packages.setdefault(_package(module), []).append(module)
    by_size = sorted(packages, key=lambda package: -len(packages[package]))  # the longest begins first
    with ThreadPoolExecutor(processes or os.cpu_count()) as pool:
        yield from zip(by_size, pool.map(_load_elsewhere, (packages[package] for package in by_size)), strict=True)
    try:
        done.touch(mode=0o600)
    except OSError as error:
        raise NotCachedError(f"{done}: {error.strerror}") from error


@contextlib.contextmanager
def warm_in_background() -> Iterator[None]:
    """Compile what `warm` does at low priority, one package at a time, while the block runs; its failure is no error.

    The switch and the controller do so, for the workers of their machine.
    """
    nice = "import contextlib, os\nwith contextlib.suppress(OSError): os.nice(5)\n"
    script = f"{nice}from p4reduce_runtime import kernels\nlist(kernels.warm(1))"
    command = [sys.executable, "-P", "-c", script]
    quiet = subprocess.DEVNULL
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, cache.UnusableCacheError):  # no process can be started now
            if not _is_warm():
                process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
                stack.callback(_end, process)
        yield


def _is_warm() -> bool:
    """Return whether all is compiled, as far as it is known without importing numba, which takes time and memory."""
    return sys.modules.get("numba") is not None and (_made_folder() / _DONE).exists()


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(_WARM_S)


def load_alone(modules: list[str]) -> None:
    """Load kernel modules without what the packages above them import: that takes time, and torch may not be there yet.

    For processes that compile and do nothing else: those packages stay empty, but for any that constants come from.
    Ends the process with status _NOT_KEPT when what it compiled could not be kept.
    """
    for package in sorted({_package(module) for module in modules} - set(_modules(CONSTANTS))):
        for above in itertools.accumulate(package.split("."), "{}.{}".format):
            spec = importlib.util.find_spec(above) if above and above not in sys.modules else None
            if spec is not None:
                sys.modules[above] = importlib.util.module_from_spec(spec)
    for module in modules:
        importlib.import_module(module)
    if (reason := cache.why_not_kept()) is not None:
        print(reason, file=sys.stderr)
        sys.exit(_NOT_KEPT)


def _load_elsewhere(modules: list[str]) -> float:
    """Load these modules in a new process, one after the other; return the seconds that it took."""
    script = "import sys; from p4reduce_runtime import kernels; kernels.load_alone(sys.argv[1:])"
    begun = time.monotonic()
    command = [sys.executable, "-P", "-c", script, *modules]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_WARM_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise CompilationError(f"{', '.join(modules)} took more than {_WARM_S:g} s") from error
    if done.returncode == _NOT_KEPT:
        raise NotCachedError(done.stderr.strip().rpartition("\n")[2])
    if done.returncode:  # negative: the signal that ended it
        said = done.stderr.strip()[-2000:] or "it said nothing"
        ended = f"the compiling process ended with status {done.returncode}"
        raise CompilationError(f"{', '.join(modules)} cannot be compiled; {ended}: {said}")
    return time.monotonic() - begun


def _modules(group: str = MODULES) -> list[str]:
    return sorted(entry.value for entry in metadata.entry_points(group=group))


def _package(module: str) -> str:
    return module.rpartition(".")[0]


def _cache_of(function: Callable[..., Any], types: Any, *, allocates: bool) -> kernel_cache.KernelCache | None:
    """Return where a kernel is kept; None where there is no folder.

    The name has the types with the places of all fields: of a process whose sources were changed after it had imported
    some, the folder's digest does not say what it compiles.
    """
    folder = _folder()
    if folder is None:
        return None
    source = function.__code__.co_filename
    try:
        told_apart = hashlib.sha256(f"{folder.name}\n{_text_digest(source)}\n{types}".encode()).hexdigest()
    except OSError as error:  # such as a module in a zip archive
        cache.say_unkept(Path(source), error.strerror)
        return None
    path = folder / f"{function.__module__}.{function.__qualname__}-{told_apart[:16]}"
    lock = folder / f"{function.__module__}.lock"
    return kernel_cache.KernelCache(path, lock, allocates=allocates)


@functools.cache
def _text_digest(source: str) -> str:
    return hashlib.sha256(Path(source).read_bytes()).hexdigest()


@functools.cache
def _folder() -> Path | None:
    """Return `_made_folder`; None, which is logged, where there is none."""
    try:
        return _made_folder()
    except cache.UnusableCacheError as error:
        cache.say_no_folder(error)
        return None


def _made_folder() -> Path:
    """Return the folder of what is compiled of these sources, by this compiler, for this processor.

    Raises UnusableCacheError.
    """
    import numba
    import numpy
    from numba.core.registry import cpu_target

    parent = cache.usable_folder()
    processor = cpu_target.target_context.codegen().magic_tuple()
    digest = hashlib.sha256(
        f"{numba.__version__} {numpy.__version__} {sys.implementation.cache_tag} {processor}".encode()
    )
    try:
        for source in (Path(__file__), Path(kernel_cache.__file__), Path(records.__file__), *_sources()):
            digest.update(source.read_bytes())
        folder = parent / f"kernels-{digest.hexdigest()[:16]}"
        if not folder.exists():
            cache.prune(parent)
        cache.safe_folder(folder)
    except OSError as error:
        raise cache.UnusableCacheError(f"{error.filename}: {error.strerror}") from error
    with contextlib.suppress(OSError):
        os.utime(folder)  # the time of its last use
    return folder


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
