"""No fault of the kernel cache stops a program: it compiles again, and one line says why."""

from __future__ import annotations

import fcntl
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from p4reduce_runtime import cache, kernel_cache, kernels
from p4reduce_runtime.records import Record
from rigs.doubling import COMPILED, LOADED, MODULE, USE, Use, environment_in, kept

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a second user or a mount")
OTHER_UID = 65534
"""A uid that is neither root's nor this process's."""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Of a process that finds the kernel module and has a cache of its own."""
    return environment_in(tmp_path)


def flipped(content: bytes) -> bytes:
    """One bit of the machine code is another."""
    place = content.index(b"\x7fELF") + 0x60
    return content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",  # as after a power cut
    "half": lambda content: content[: len(content) // 2],
    "a flipped bit": flipped,
}


@pytest.mark.fault(
    "a kernel file is empty (power cut), cut or has a flipped bit: the kernel is compiled again and kept; one "
    "line names the file"
)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_compiled_again(damage: str, environment: dict[str, str], use: Use) -> None:
    assert use(environment) == (COMPILED, [])
    (file,) = kept(environment)
    whole = file.read_bytes()
    file.write_bytes(DAMAGES[damage](whole))
    words, log = use(environment)
    assert words == COMPILED
    assert len(log) == 1 and f"{file}: it is damaged" in log[0]
    assert use(environment) == (LOADED, [])


TWO = (
    MODULE
    + '''

@kernel("int64(int64)")
def tripled(number):
    """Return three times the number."""
    return 3 * number
'''
)


def test_many_damaged_files_are_logged_once(environment: dict[str, str], tmp_path: Path, use: Use) -> None:
    (tmp_path / "doubling.py").write_text(TWO, encoding="utf-8")
    use(environment)
    assert len(kept(environment)) == 2
    for file in kept(environment):
        file.write_bytes(b"")
    words, log = use(environment)
    assert words == COMPILED and len(log) == 1


@pytest.mark.fault("a kernel file under another kernel's name: the kernel is compiled again and kept")
def test_a_file_under_another_kernels_name_is_not_used(environment: dict[str, str], tmp_path: Path, use: Use) -> None:
    """As when a file of another version is copied there."""
    (tmp_path / "doubling.py").write_text(TWO, encoding="utf-8")
    use(environment)
    doubled, tripled = kept(environment)
    shutil.copy(tripled, doubled)
    words, log = use(environment)
    assert words == COMPILED and len(log) == 1 and f"{doubled}: " in log[0]


@pytest.mark.fault("files of another version of numba: they are ignored; kernels are compiled")
def test_files_of_another_version_of_numba_are_ignored(environment: dict[str, str], use: Use) -> None:
    assert use(environment) == (COMPILED, [])
    assert use(environment, f"import numba\nnumba.__version__ = 'another'\n{USE}") == (COMPILED, [])
    assert use(environment) == (LOADED, [])


def test_a_changed_module_is_compiled_anew(environment: dict[str, str], tmp_path: Path, use: Use) -> None:
    use(environment)
    (tmp_path / "doubling.py").write_text(MODULE.replace("2 * number", "number + number"), encoding="utf-8")
    assert use(environment) == (COMPILED, [])


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
        kept = kernels._cache_of(flipped, kernels._type_of(record))
        assert kept is not None
        files.add(kept._path)
    assert len(files) == 2


@pytest.mark.fault("no file descriptors are left: kernels are compiled and not kept; one line")
def test_without_file_descriptors_it_compiles(environment: dict[str, str], tmp_path: Path, use: Use) -> None:
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (0, 4096))\n"
    (tmp_path / "doubling.py").write_text(MODULE.replace("\n\n\n", f"\n{limit}\n\n", 1), encoding="utf-8")
    imports = "import numba\nnumba.njit('int64(int64)')(lambda number: number + 1)\n"  # numba imports as it compiles
    words, log = use(environment, imports + USE)
    assert words == COMPILED
    assert len(log) == 1 and "not kept" in log[0] and ": Too many open files" in log[0]


def test_on_a_full_disk_it_compiles(environment: dict[str, str], use: Use) -> None:
    """A limit of the size of files stands for the disk's."""
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
    words, log = use(environment, limit + USE)
    assert words == COMPILED
    assert len(log) == 1 and environment["P4REDUCE_CACHE_DIR"] in log[0] and "File too large" in log[0]
    assert kept(environment) == [], "no part of a file stays"


def mounted(mount: str, folder: str) -> tuple[str, ...]:
    """Return the beginning of a command that runs what follows with something mounted, for itself alone."""
    return ("unshare", "--mount", "sh", "-ec", f'{mount}; exec "$@"', "sh", folder)


@pytest.mark.fault("the disk is full: kernels are compiled and not kept; one line")
@needs_root
@pytest.mark.parametrize("inodes", ["16", "1"], ids=["no blocks", "no inodes"])
def test_on_a_full_file_system_it_compiles(inodes: str, environment: dict[str, str], use: Use) -> None:
    folder = environment["P4REDUCE_CACHE_DIR"]
    full = 'mount -t tmpfs -o size=8k,mode=700,nr_inodes=$2 none "$1"; { cat /dev/zero >"$1/full"; } 2>&- || :; shift 2'
    words, log = use(environment, before=(*mounted(full, folder), inodes))
    assert words == COMPILED
    assert len(log) == 1 and folder in log[0] and "No space left on device" in log[0]


READ_ONLY = 'mount --bind "$1" "$1"; mount -o remount,ro,bind "$1"; shift'


@pytest.mark.fault(
    "the folder is read-only: kernels are loaded from it; what is missing is compiled and not kept; one line"
)
@needs_root
def test_from_a_read_only_file_system_it_loads_and_else_compiles(environment: dict[str, str], use: Use) -> None:
    folder = environment["P4REDUCE_CACHE_DIR"]
    words, log = use(environment, before=mounted(READ_ONLY, folder))
    assert words == COMPILED and len(log) == 1 and folder in log[0] and "Read-only file system" in log[0]
    use(environment)
    assert use(environment, before=mounted(READ_ONLY, folder)) == (LOADED, [])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere; the read-only file system is for root")
def test_in_a_folder_that_this_user_cannot_write_it_loads_and_else_compiles(
    environment: dict[str, str], use: Use
) -> None:
    folder = Path(environment["P4REDUCE_CACHE_DIR"])
    folder.chmod(0o500)
    words, log = use(environment)
    assert words == COMPILED and len(log) == 1 and str(folder) in log[0] and "Permission denied" in log[0]
    folder.chmod(0o700)
    use(environment)
    folder.chmod(0o500)
    assert use(environment) == (LOADED, [])
    folder.chmod(0o700)


@pytest.mark.fault("something else in the place of a file, a lock or a folder: the kernel is compiled")
@pytest.mark.parametrize("place", ["the kernel", "the lock", "the folder"])
def test_a_path_of_another_type_is_not_used(place: str, environment: dict[str, str], use: Use) -> None:
    use(environment)
    (kernel,) = kept(environment)
    if place == "the kernel":
        kernel.unlink()
        kernel.mkdir()
    elif place == "the lock":
        kernel.unlink()
        (lock,) = kernel.parent.glob("*.lock")
        lock.unlink()
        lock.mkdir()
    else:
        shutil.rmtree(kernel.parent)
        kernel.parent.touch()
    words, log = use(environment)
    assert words == COMPILED and log and all(environment["P4REDUCE_CACHE_DIR"] in line for line in log)


STOPS = f"""
import os, signal
from p4reduce_runtime import kernel_cache
kernel_cache.KernelCache.save_overload = lambda *whatever: os.kill(os.getpid(), signal.SIGSTOP)
{USE}
"""
IMPATIENT = f"""
from p4reduce_runtime import kernel_cache
with kernel_cache.waiting_at_most(0.2) as waiting:
    {USE.strip().replace(chr(10), chr(10) + "    ")}
"""


@pytest.fixture
def stopped(environment: dict[str, str]) -> Iterator[int]:
    """A process that compiles, holds the lock and is stopped."""
    process = subprocess.Popen([sys.executable, "-c", STOPS], env=environment)
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        yield process.pid
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


@pytest.mark.fault(
    "a process that compiles is stopped while it holds the lock: others wait 20 s in all, in `join()` half of "
    "its timeout at most, and say so; then they compile without the lock"
)
def test_the_wait_for_a_stopped_process_with_the_lock_is_bounded(
    environment: dict[str, str], stopped: int, use: Use
) -> None:
    words, log = use(environment, IMPATIENT)
    assert words == COMPILED
    waiting, over = log
    assert f"another process compiles kernels and holds {environment['P4REDUCE_CACHE_DIR']}" in waiting
    assert "waiting for it, 0.2 s at most" in waiting and "this process compiles them too" in over
    assert use(environment) == (LOADED, []), "it was kept all the same, and loading takes no lock"


@pytest.mark.fault(
    "a process is stopped while it holds the cache's lock, the kernels compiled already: nothing: loading takes no lock"
)
def test_loading_takes_no_lock(environment: dict[str, str], use: Use) -> None:
    use(environment)
    with open(next(Path(environment["P4REDUCE_CACHE_DIR"]).rglob("*.lock")), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert use(environment) == (LOADED, [])


def test_all_locks_are_waited_for_together(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open(tmp_path / "one", "wb") as one, open(tmp_path / "other", "wb") as other:
        for lock in (one, other):
            fcntl.flock(lock, fcntl.LOCK_EX)
        with kernel_cache.waiting_at_most(0.2) as waiting:
            assert kernel_cache._acquire(tmp_path / "one") is None
            spent = waiting.waited_s
            assert kernel_cache._acquire(tmp_path / "other") is None
            assert waiting.waited_s == spent and waiting.left_s == 0
            with kernel_cache.waiting_at_most(60.0) as part:
                assert part.left_s == 0, "a part has no more than what is left of the whole"


def test_a_released_lock_is_free_although_a_forked_child_has_it_open(environment: dict[str, str], use: Use) -> None:
    forks = f"""
import os, signal
from p4reduce_runtime import kernel_cache
save = kernel_cache.KernelCache.save_overload
def save_and_fork(*arguments):
    global child
    save(*arguments)
    child = os.fork()
    if child == 0:
        os.close(1)
        os.close(2)
        signal.pause()
kernel_cache.KernelCache.save_overload = save_and_fork
{USE}
import fcntl, pathlib
try:
    with open(next(pathlib.Path(os.environ["P4REDUCE_CACHE_DIR"]).rglob("*.lock")), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        print("free")
finally:
    os.kill(child, signal.SIGKILL)
"""
    words, _ = use(environment, forks)
    assert words == [*COMPILED, "free"]


class Planted:
    """What makes a folder when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.fault(
    "root runs with another user's `HOME`, whose owner redirects a link to planted files: the planted files are "
    "not read; kernels are compiled, one line"
)
@needs_root
def test_root_with_another_users_home_runs_nothing_of_that_user(
    environment: dict[str, str], tmp_path: Path, use: Use
) -> None:
    """Its cache folder is a link to a folder of root's, which the user turns to one of his own at the right moment."""
    home = Path(tempfile.mkdtemp())
    try:
        planted, mark = home / "planted", tmp_path / "ran"
        use(environment | {"P4REDUCE_CACHE_DIR": str(planted)})
        for file in kept({"P4REDUCE_CACHE_DIR": str(planted)}):
            cache.write(file, pickle.dumps(Planted(mark)))
        use(environment | {"P4REDUCE_CACHE_DIR": str(planted)})
        assert mark.exists(), "what is planted in a folder that is used does run"
        mark.rmdir()
        for file in kept({"P4REDUCE_CACHE_DIR": str(planted)}):
            cache.write(file, pickle.dumps(Planted(mark)))
        (home / ".cache").mkdir()
        link = home / ".cache" / "p4reduce"
        link.symlink_to(environment["P4REDUCE_CACHE_DIR"])
        for path in (home, *home.rglob("*")):
            os.chown(path, OTHER_UID, OTHER_UID, follow_symlinks=False)
        turn = f"import os\nos.unlink({str(link)!r})\nos.symlink({str(planted)!r}, {str(link)!r})\n"
        turned = f"from p4reduce_runtime.cache import cache_folder\ncache_folder()\n{turn}{USE}"
        theirs = {name: value for name, value in environment.items() if name != "P4REDUCE_CACHE_DIR"}
        theirs |= {"HOME": str(home), "XDG_CACHE_HOME": ""}
        (tmp_path / "doubling.py").write_text(MODULE, encoding="utf-8")
        words, log = use(theirs, turned)
        assert words == COMPILED and not mark.exists()
        assert len(log) == 1 and f"{home}: it belongs to user {OTHER_UID}" in log[0] and "P4REDUCE_CACHE_DIR" in log[0]
        words, log = use(theirs | {"P4REDUCE_CACHE_DIR": str(link)})
        assert words == COMPILED and not mark.exists() and len(log) == 1
        for path in (home, home / ".cache"):  # now the link alone is the user's
            os.chown(path, 0, 0)
        assert use(theirs)[0] == COMPILED and not mark.exists()
    finally:
        shutil.rmtree(home)
