"""A kernel module that this process finds, and an empty cache folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigs.doubling import MODULE, Use, forget, used


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The environment of a process that finds the kernel module and has a cache of its own, as this one has now."""
    (tmp_path / "doubling.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "cache").mkdir(mode=0o700)
    monkeypatch.setenv("P4REDUCE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    forget()
    yield os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    forget()


@pytest.fixture
def use(environment: dict[str, str], caplog: pytest.LogCaptureFixture) -> Use:
    """Uses the kernel as a new process does."""
    return lambda: used(caplog)
