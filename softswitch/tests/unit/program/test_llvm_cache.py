"""Object files that are kept, and what the compiler refuses."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest

from conformance.case import PROGRAMS
from p4reduce_runtime import cache
from p4reduce_switch.program import Program, UnsupportedConstructError
from p4reduce_switch.program.llvm import build, target

CONFIG = (PROGRAMS / "exact_two_keys.json").read_bytes()


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths of the object files that were made, with a cache of its own."""
    monkeypatch.setenv("P4REDUCE_CACHE_DIR", str(tmp_path))
    lengths: list[int] = []
    whole = target.object_of

    def counted(text: str) -> bytes:
        lengths.append(len(text))
        return whole(text)

    monkeypatch.setattr(target, "object_of", counted)
    return lengths


def works(config: bytes) -> None:
    ((port, frame),) = Program(config).process(1, bytes(8))
    assert len(frame) == 8


def test_a_program_is_compiled_once(made: list[int], tmp_path: Path) -> None:
    works(CONFIG)
    works(CONFIG)
    assert len(made) == 1 and len(list(tmp_path.iterdir())) == 1
    works((PROGRAMS / "lpm.json").read_bytes())
    assert len(made) == 2


@pytest.mark.fault("the switch's compiled program is cut: it is compiled again")
@pytest.mark.parametrize("end", [0, 10, 40, -1])
def test_a_truncated_file_is_compiled_again(made: list[int], tmp_path: Path, end: int) -> None:
    works(CONFIG)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:end])
    works(CONFIG)
    assert len(made) == 2 and file.read_bytes() == whole


def test_another_compiler_version_uses_its_own_file(
    made: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    works(CONFIG)
    monkeypatch.setattr(build, "_sources", lambda: b"another")
    works(CONFIG)
    assert len(made) == 2 and len(list(tmp_path.iterdir())) == 2


@pytest.mark.fault("the switch on a full disk: it compiles its program and runs")
def test_on_a_full_disk_the_program_runs(
    made: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A limit of the size of files stands for the disk's."""
    monkeypatch.setattr(cache, "_said", {})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        works(CONFIG)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []
    (line,) = (record.getMessage() for record in caplog.records if record.name == cache.__name__)
    assert f"{tmp_path}/executor-" in line and "File too large" in line


def test_without_file_descriptors_the_program_runs(made: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_said", {})
    program = json.loads(CONFIG)
    build._sources.cache_clear()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        loaded = Program(program)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert loaded.batch is not None and len(made) == 1


def test_constructs_that_cannot_be_compiled_are_refused_by_name() -> None:
    config = json.loads((PROGRAMS / "varbit.json").read_text())
    for kind in config["header_types"]:
        kind["max_length"] = None
    with pytest.raises(UnsupportedConstructError, match="a varbit field without a limit"):
        Program(config)
