"""The cache folder: what other users could have changed is not used, nor is a damaged file, and its size is bounded."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from p4reduce_runtime import cache

OTHER_UID = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files to a second user")


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test logs as a process that has logged nothing yet."""
    monkeypatch.setattr(cache, "_said", {})


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, cache.__name__)
    return lambda: [record.getMessage() for record in caplog.records if record.name == cache.__name__]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    cache.write(tmp_path / "kept", b"content")
    return tmp_path / "kept"


def test_a_written_file_is_read_back(file: Path, said: Callable[[], list[str]]) -> None:
    assert cache.read(file) == b"content"
    cache.write(file, b"")
    assert cache.read(file) == b""
    assert cache.read(file.with_name("missing")) is None
    assert said() == [] and [path.name for path in file.parent.iterdir()] == ["kept"]


def test_any_damage_is_detected(file: Path) -> None:
    whole = file.read_bytes()
    for damaged in (
        *(whole[:end] for end in range(len(whole))),
        *(bytes([*whole[:at], whole[at] ^ 1 << at % 8, *whole[at + 1 :]]) for at in range(len(whole))),
        whole + b"\0",
        bytes(len(whole)),
    ):
        file.write_bytes(damaged)
        assert cache.read(file) is None


@pytest.mark.fault("a kernel file under another kernel's name: the kernel is compiled again and kept")
def test_a_file_under_another_name_is_not_used(file: Path, said: Callable[[], list[str]]) -> None:
    file.rename(file.with_name("other"))
    assert cache.read(file.with_name("other")) is None
    assert said() == [
        f"compiled again, since what was kept cannot be used: {file.with_name('other')}: "
        "it is damaged, or belongs under another name"
    ]


def test_one_line_for_each_kind_of_fault(file: Path, said: Callable[[], list[str]]) -> None:
    for _ in range(3):
        file.write_bytes(b"")
        assert cache.read(file) is None
        cache.write(file / "below", b"content")
    unread, unkept = said()
    assert unread.endswith(f"{file}: it is damaged, or belongs under another name")
    assert unkept.endswith(f"{file}/below: Not a directory")
    assert cache.why_not_kept() == unkept


def be_a_link(file: Path) -> None:
    file.rename(file.with_name("target"))
    file.symlink_to("target")


def be_a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def be_a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


WRONG_FILES: dict[str, Callable[[Path], object]] = {
    "it is a symbolic link": be_a_link,
    "Is a directory": be_a_folder,
    "it is not a file": be_a_pipe,
    "other users can write it (mode 620)": lambda file: file.chmod(0o620),
    "other users can write it (mode 602)": lambda file: file.chmod(0o602),
    f"it belongs to user {OTHER_UID}": lambda file: os.chown(file, OTHER_UID, OTHER_UID),
}


@pytest.mark.parametrize(
    "reason", [pytest.param(reason, marks=needs_root if "belongs" in reason else ()) for reason in WRONG_FILES]
)
def test_a_file_that_another_user_could_have_written(reason: str, file: Path, said: Callable[[], list[str]]) -> None:
    WRONG_FILES[reason](file)
    assert cache.read(file) is None
    (line,) = said()
    assert f"{file}: {reason}" in line


def folder_of(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path | None:
    """Return the cache folder of a user who names this one."""
    monkeypatch.setenv("P4REDUCE_CACHE_DIR", str(path))
    return cache.cache_folder()


def test_the_folder_is_made_and_so_are_those_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folder_of(tmp_path / "a" / "b", monkeypatch) == tmp_path / "a" / "b"
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b")] == [0o700, 0o700]
    monkeypatch.chdir(tmp_path / "a")
    assert folder_of(Path("../a/./c"), monkeypatch) == tmp_path / "a" / "c"


def test_the_folder_is_below_the_users_cache_or_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("P4REDUCE_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / ".cache" / "p4reduce"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert cache.cache_folder() == tmp_path / "other" / "p4reduce"


def test_links_are_resolved_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever turns the link later changes nothing."""
    (tmp_path / "target").mkdir(mode=0o700)
    (tmp_path / "absolute").symlink_to(tmp_path / "target")
    (tmp_path / "relative").symlink_to("target/../absolute")
    for name in ("absolute", "relative", "relative/../target"):
        assert folder_of(tmp_path / name, monkeypatch) == tmp_path / "target"
    (tmp_path / "loop").symlink_to("loop")
    assert folder_of(tmp_path / "loop", monkeypatch) is None


WRITABLE = (0o770, 0o707, 0o777)


@pytest.mark.parametrize("mode", [*WRITABLE, 0o1777])
def test_a_folder_that_others_can_write_is_not_used(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Callable[[], list[str]]
) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(mode)
    assert folder_of(tmp_path / "open", monkeypatch) is None
    (line,) = said()
    assert f"{tmp_path}/open: other users can write it (mode {mode:o})" in line
    assert line.endswith("set P4REDUCE_CACHE_DIR to a folder that only this user can write")


@pytest.mark.parametrize("mode", WRITABLE)
def test_a_folder_below_one_that_others_can_write_is_not_used(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "open" / "mine" / "deep").mkdir(mode=0o700, parents=True)
    (tmp_path / "link").symlink_to("open/mine/deep")
    (tmp_path / "open").chmod(mode)
    assert folder_of(tmp_path / "open" / "mine" / "deep", monkeypatch) is None
    assert folder_of(tmp_path / "open" / "missing", monkeypatch) is None
    assert not (tmp_path / "open" / "missing").exists(), "nothing is made where it cannot be used"
    assert folder_of(tmp_path / "link", monkeypatch) is None


def test_a_folder_below_a_sticky_one_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    assert folder_of(tmp_path / "shared" / "mine", monkeypatch) == tmp_path / "shared" / "mine"


@pytest.mark.fault(
    "root runs with another user's `HOME`, whose owner redirects a link to planted files: the planted files are "
    "not read; kernels are compiled, one line"
)
@needs_root
@pytest.mark.parametrize("theirs", ["home", "home/.cache", "home/.cache/p4reduce", "home/link"])
def test_a_folder_of_another_user_is_not_used(
    theirs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Callable[[], list[str]]
) -> None:
    """Root finds the home of a user after `sudo -E`; the last is the link that was turned."""
    (tmp_path / "home" / ".cache" / "p4reduce").mkdir(mode=0o700, parents=True)
    (tmp_path / "home" / "link").symlink_to(tmp_path / "home" / ".cache")
    os.chown(tmp_path / theirs, OTHER_UID, OTHER_UID, follow_symlinks=False)
    monkeypatch.delenv("P4REDUCE_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / "link") if "link" in theirs else "")
    assert cache.cache_folder() is None
    (line,) = said()
    assert f"{tmp_path / theirs}: it belongs to user {OTHER_UID}, and this process runs as user 0" in line


def test_a_file_at_the_folders_path_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Callable[[], list[str]]
) -> None:
    (tmp_path / "file").touch(mode=0o600)
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        assert folder_of(path, monkeypatch) is None
    (line,) = said()
    assert f"{tmp_path}/file: it is not a folder" in line


def aged(path: Path, seconds: float) -> None:
    """Make this the time since the last use."""
    used = time.time() - seconds
    os.utime(path, (used, used))


def test_files_not_used_for_long_are_removed(tmp_path: Path) -> None:
    for name, age in (("old", cache.UNUSED_S + 60), ("used", cache.UNUSED_S - 60)):
        (tmp_path / f"kernels-{name}").mkdir()
        (tmp_path / f"kernels-{name}" / "file").touch()
        for path in (tmp_path / f"kernels-{name}", tmp_path / f"executor-{name}.o"):
            path.touch()
            aged(path, age)
    (tmp_path / "other").touch()
    aged(tmp_path / "other", cache.UNUSED_S + 60)
    cache.prune(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["executor-used.o", "kernels-used", "other"]


def test_a_file_that_was_read_counts_as_used(file: Path) -> None:
    path = file.rename(file.with_name("executor-1.o"))
    cache.write(path, b"content")
    aged(path, cache.UNUSED_S + 60)
    assert cache.read(path) == b"content"
    cache.prune(path.parent)
    assert path.exists()


@pytest.mark.fault(
    "the cache grows: at most 512 MiB stay, nothing that was not used for 14 days; checked whenever a folder of "
    "kernels or a program is added"
)
def test_the_least_recently_used_are_removed_until_the_rest_is_small_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "MOST_BYTES", 12_000)
    for number in range(4):
        folder = tmp_path / f"kernels-{number}"
        folder.mkdir()
        (folder / "file").write_bytes(bytes(2500))
        (tmp_path / f"executor-{number}.o").write_bytes(bytes(2500))
        aged(folder, 100 * number)
        aged(tmp_path / f"executor-{number}.o", 100 * number + 50)
    cache.prune(tmp_path)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["executor-0.o", "executor-1.o", "kernels-0", "kernels-1"]
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) <= 12_000


@pytest.mark.fault(
    "temporary files of processes that were killed: removed from the cache after an hour, whenever something is added"
)
def test_temporary_files_of_processes_that_have_ended_are_removed(tmp_path: Path) -> None:
    (tmp_path / "kernels-1").mkdir()
    left = [folder / f"{name}.tmp" for folder in (tmp_path, tmp_path / "kernels-1") for name in ("old", "new")]
    for path in left:
        path.touch()
        aged(path, 7200 if "old" in path.name else 60)
    cache.prune(tmp_path)
    assert [path.name for path in left if path.exists()] == ["new.tmp", "new.tmp"]


def test_pruning_a_missing_folder_does_nothing(tmp_path: Path) -> None:
    cache.prune(tmp_path / "gone")
