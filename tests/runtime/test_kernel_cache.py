"""No fault of the kernel cache stops a program: it compiles again, and one line says why.

What is not read, and why, is shown in test_cache.py; here, that kernels are compiled then.
"""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
from pathlib import Path

import numba
import pytest

from p4reduce_runtime import cache, kernel_cache, kernels
from p4reduce_runtime.records import Record
from rigs.doubling import COMPILED, LOADED, MODULE, Use, kept


@pytest.mark.fault(
    "a kernel file is empty (power cut), cut or has a flipped bit: the kernel is compiled again and kept; one "
    "line names the file"
)
def test_a_damaged_file_is_compiled_again(environment: dict[str, str], use: Use) -> None:
    assert use() == (COMPILED, [])
    (file,) = kept(environment)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    words, log = use()
    assert words == COMPILED
    assert len(log) == 1 and f"{file}: it is damaged" in log[0]
    assert use() == (LOADED, [])


@pytest.mark.fault("files of another version of numba: they are ignored; kernels are compiled")
def test_files_of_another_version_of_numba_are_ignored(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    assert use() == (COMPILED, [])
    with monkeypatch.context() as patch:
        patch.setattr(numba, "__version__", "another")
        assert use() == (COMPILED, [])
    assert use() == (LOADED, [])


def test_a_changed_module_is_compiled_anew(tmp_path: Path, use: Use) -> None:
    use()
    (tmp_path / "doubling.py").write_text(MODULE.replace("2 * number", "number + number"), encoding="utf-8")
    assert use() == (COMPILED, [])


def test_records_of_another_layout_have_another_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Although all sources are the same: they may be changed while a process imports them."""

    class Pair(Record):
        first: int
        second: int

    class Triple(Record):
        first: int
        between: int
        second: int

    monkeypatch.setattr(kernels, "_folder", lambda: tmp_path)
    files = set()
    for record in (Pair, Triple, Pair):
        types = kernels._type_of(record)
        kept = kernels._cache_of(test_records_of_another_layout_have_another_file, types, allocates=False)
        assert kept is not None
        files.add(kept._path)
    assert len(files) == 2


@pytest.mark.fault("no file descriptors are left: kernels are compiled and not kept; one line")
@pytest.mark.fault("the disk is full: kernels are compiled and not kept; one line")
@pytest.mark.parametrize(
    ("limit", "most", "reason"),
    [
        (resource.RLIMIT_NOFILE, 0, "Too many open files"),
        (resource.RLIMIT_FSIZE, 100, "File too large"),  # it stands for the size of the disk
    ],
)
def test_what_cannot_be_kept_is_compiled(
    limit: int, most: int, reason: str, environment: dict[str, str], tmp_path: Path, use: Use
) -> None:
    numba.njit("int64(int64)")(lambda number: number + 1)  # numba imports as it compiles
    before = resource.getrlimit(limit)
    lowered = f"import resource\nresource.setrlimit({limit}, ({most}, {before[1]}))\n"
    (tmp_path / "doubling.py").write_text(MODULE.replace("\n\n\n", f"\n{lowered}\n\n", 1), encoding="utf-8")
    try:
        words, log = use()
    finally:
        resource.setrlimit(limit, before)
    assert words == COMPILED
    assert len(log) == 1 and "not kept" in log[0] and reason in log[0]
    assert kept(environment) == [], "no part of a file stays"


@pytest.mark.fault(
    "the folder is read-only: kernels are loaded from it; what is missing is compiled and not kept; one line"
)
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_in_a_folder_that_this_user_cannot_write_it_loads_and_else_compiles(
    environment: dict[str, str], use: Use
) -> None:
    folder = Path(environment["P4REDUCE_CACHE_DIR"])
    folder.chmod(0o500)
    words, log = use()
    assert words == COMPILED and len(log) == 1 and str(folder) in log[0] and "Permission denied" in log[0]
    folder.chmod(0o700)
    use()
    folder.chmod(0o500)
    assert use() == (LOADED, [])
    folder.chmod(0o700)


@pytest.mark.fault("something else in the place of a file, a lock or a folder: the kernel is compiled")
@pytest.mark.parametrize("place", ["the lock", "the folder"])
def test_a_path_of_another_type_is_not_used(place: str, environment: dict[str, str], use: Use) -> None:
    use()
    (kernel,) = kept(environment)
    if place == "the lock":
        kernel.unlink()
        (lock,) = kernel.parent.glob("*.lock")
        lock.unlink()
        lock.mkdir()
    else:
        shutil.rmtree(kernel.parent)
        kernel.parent.touch()
    words, log = use()
    assert words == COMPILED and log and all(environment["P4REDUCE_CACHE_DIR"] in line for line in log)


@pytest.mark.fault(
    "a process that compiles is stopped while it holds the lock: after 60 s without a compiled kernel one of those "
    "that wait takes its place, and says so"
)
def test_a_stopped_process_with_the_lock_is_passed(
    environment: dict[str, str], use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other processes see only that the lock is held, and that no kernel comes."""
    use()
    (kernel,) = kept(environment)
    kernel.unlink()
    monkeypatch.setattr(kernel_cache, "STALLED_S", 0.2)
    with open(next(Path(environment["P4REDUCE_CACHE_DIR"]).rglob("*.lock")), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        words, log = use()
    assert words == COMPILED
    waiting, passed = log
    assert f"waiting while another process compiles kernels ({environment['P4REDUCE_CACHE_DIR']}" in waiting
    assert "once on this machine, up to a minute" in waiting and "has not compiled anything for 0.2 s" in passed
    assert use() == (LOADED, [])


@pytest.mark.fault(
    "a process is stopped while it holds the cache's lock, the kernels compiled already: nothing: loading takes no lock"
)
def test_loading_takes_no_lock(environment: dict[str, str], use: Use) -> None:
    use()
    with open(next(Path(environment["P4REDUCE_CACHE_DIR"]).rglob("*.lock")), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert use() == (LOADED, [])


def test_a_process_that_goes_on_compiling_is_waited_for_without_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Time passes in the pauses only; in each third of the limit the other process compiles another kernel."""
    monkeypatch.setattr(cache, "_said", {})
    path, now = tmp_path / "lock", [0.0]
    monkeypatch.setattr(kernel_cache.time, "monotonic", lambda: now[0])
    with open(path, "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        def pause(seconds: float) -> None:
            now[0] += kernel_cache.STALLED_S / 3
            os.utime(lock.fileno(), ns=(0, int(now[0])))
            if now[0] > 50 * kernel_cache.STALLED_S:
                fcntl.flock(lock, fcntl.LOCK_UN)

        monkeypatch.setattr(kernel_cache.time, "sleep", pause)
        acquired = kernel_cache._acquire(path)
        assert acquired is not None and kernel_cache._is_at(lock.fileno(), path), "the lock is the same file"
        os.close(acquired)
    assert len(caplog.messages) == 1


def test_one_of_those_that_wait_takes_the_place_of_a_stopped_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others wait for that one."""
    monkeypatch.setattr(cache, "_said", {})
    monkeypatch.setattr(kernel_cache, "STALLED_S", 0.0)
    path, taken = tmp_path / "lock", list[int]()
    with open(path, "wb") as stopped:
        fcntl.flock(stopped, fcntl.LOCK_EX)
        waits = os.open(path, os.O_RDWR)
        first = kernel_cache._acquire(path)
        assert first is not None

        def pause(seconds: float) -> None:
            if not taken:
                taken.append(first)
                os.close(first)

        monkeypatch.setattr(kernel_cache, "STALLED_S", 60.0)
        monkeypatch.setattr(kernel_cache.time, "sleep", pause)
        kernel_cache._wait_for(waits, path)
        assert not taken, "it has seen that its lock is not the one there any more"
        second = kernel_cache._acquire(path)
        assert second is not None and taken == [first], "it waited for the new holder"
        os.close(second)
        os.close(waits)


def test_a_released_lock_is_free_although_a_copy_of_its_descriptor_is_open(tmp_path: Path) -> None:
    """A child that was forked while this process compiled has such a copy."""
    cached = kernel_cache.KernelCache(tmp_path / "kernel", tmp_path / "lock", allocates=False)
    with cached:
        cached._lock = kernel_cache._acquire(tmp_path / "lock")
        assert cached._lock is not None
        of_child = os.dup(cached._lock)
    with open(tmp_path / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(of_child)
