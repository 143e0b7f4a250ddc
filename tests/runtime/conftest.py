"""A kernel module that this process finds, and an empty cache folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigs.doubling import Use, environment_in, forget, used


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The environment of a process that finds the kernel module and has a cache of its own, as this one has now."""
    found = environment_in(tmp_path)
    monkeypatch.setenv("P4REDUCE_CACHE_DIR", found["P4REDUCE_CACHE_DIR"])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    forget()
    yield found
    forget()


@pytest.fixture
def use(environment: dict[str, str], caplog: pytest.LogCaptureFixture) -> Use:
    """Uses the kernel as a new process does."""
    return lambda: used(caplog)
