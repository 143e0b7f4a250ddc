"""The compiled programs are what p4c makes of their sources."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from conformance.case import PROGRAMS

_SPEC = importlib.util.spec_from_file_location("conformance_programs_build", PROGRAMS / "build.py")
assert _SPEC is not None and _SPEC.loader is not None
build = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(build)


@pytest.mark.p4c
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("p4c-bm2-ss") is None, reason="p4c-bm2-ss is not on PATH")
@pytest.mark.parametrize("source", build.sources(), ids=lambda path: path.stem)
def test_compiled_program_is_current(source: Path) -> None:
    program, p4info = build.compile_p4(source)
    hint = "run `python softswitch/tests/conformance/programs/build.py`, then `make conformance`"
    assert source.with_suffix(".json").read_text() == program, hint
    assert source.with_suffix(".p4info.txtpb").read_text() == p4info, hint
