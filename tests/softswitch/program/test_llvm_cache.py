"""Object files that are kept, and what the compiler refuses."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from conformance.case import PROGRAMS
from p4reduce_switch.program import Program, UnsupportedConstruct
from p4reduce_switch.program.llvm import build, target  # noqa: E402

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


@pytest.mark.parametrize("end", [0, 10, 40, -1])
def test_a_torn_file_is_made_again(made: list[int], tmp_path: Path, end: int) -> None:
    works(CONFIG)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:end])
    works(CONFIG)
    assert len(made) == 2 and file.read_bytes() == whole


def test_another_compiler_makes_its_own_file(made: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    works(CONFIG)
    monkeypatch.setattr(build, "_sources", lambda: b"another")
    works(CONFIG)
    assert len(made) == 2 and len(list(tmp_path.iterdir())) == 2


def test_the_oldest_files_go(made: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "KEPT", 2)
    for number in range(3):
        old = tmp_path / f"executor-{number}.o"
        old.write_bytes(b"")
        os.utime(old, (number, number))
    (tmp_path / "other").write_bytes(b"")
    works(CONFIG)
    left = {file.name for file in tmp_path.iterdir()}
    assert len(left) == 3 and {"other", "executor-2.o"} < left


def test_without_a_folder_nothing_is_kept(made: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P4REDUCE_CACHE_DIR", "/proc/none")
    works(CONFIG)
    works(CONFIG)
    assert len(made) == 2


def test_what_is_not_compiled_is_refused_by_name() -> None:
    config = json.loads((PROGRAMS / "varbit.json").read_text())
    for kind in config["header_types"]:
        kind["max_length"] = None
    with pytest.raises(UnsupportedConstruct, match="a varbit field without a limit"):
        Program(config)
