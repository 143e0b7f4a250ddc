"""The checked-in JSON of the little programs is what p4c makes of their source."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs"
NAMES = sorted(p.stem for p in PROGRAMS.glob("*.p4") if p.stem != "common")


def build_module() -> Any:
    spec = importlib.util.spec_from_file_location("program_build", PROGRAMS / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_program_has_its_json() -> None:
    assert sorted(p.stem for p in PROGRAMS.glob("*.json")) == NAMES


@pytest.mark.p4c
@pytest.mark.skipif(shutil.which("p4c-bm2-ss") is None, reason="p4c-bm2-ss is not on PATH")
@pytest.mark.parametrize("name", NAMES)
def test_json_is_current(name: str) -> None:
    checked_in = json.loads((PROGRAMS / f"{name}.json").read_text())
    assert build_module().compile_p4(PROGRAMS / f"{name}.p4") == checked_in
