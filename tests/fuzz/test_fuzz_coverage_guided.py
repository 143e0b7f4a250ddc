"""Coverage-guided fuzzing of what a network or a file can reach, for so many inputs; `make fuzz` takes longer."""

from __future__ import annotations

import importlib.util

import pytest

from fuzz import coverage_guided
from rigs.limits import LIMIT_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="there is no atheris for this Python"),
]

RUNS = {
    "frame": 5_000,
    "pipeline-frame": 3_000,
    "pipeline-json": 150,
    "lease": 5_000,
    "saved-job": 2_000,
    "controller-toml": 1_000,
}


@pytest.mark.fault("bytes for any decoder, guided by coverage: its documented error")
@pytest.mark.processes
def test_only_documented_errors() -> None:
    with coverage_guided.instrumented() as server:
        for name, runs in RUNS.items():
            done = coverage_guided.fuzz(server, name, runs=runs, seconds=LIMIT_S)
            assert done.ok, done.log
            assert done.runs == runs, done.log
