"""Coverage-guided fuzzing of what a network or a file can reach, for a bounded time; `make fuzz` takes longer."""

from __future__ import annotations

import importlib.util

import pytest

from fuzz import coverage_guided

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="there is no atheris for this Python"),
]

RUNS = {
    "frame": 20_000,
    "pipeline-frame": 10_000,
    "pipeline-json": 500,
    "lease": 10_000,
    "saved-job": 5_000,
    "controller-toml": 3_000,
}


@pytest.mark.fault("bytes for any decoder, guided by coverage: its documented error")
@pytest.mark.parametrize("name", RUNS)
def test_only_documented_errors(name: str) -> None:
    done = coverage_guided.fuzz(name, runs=RUNS[name], seconds=5)
    assert done.ok, done.log
    assert done.runs > 100, done.log
