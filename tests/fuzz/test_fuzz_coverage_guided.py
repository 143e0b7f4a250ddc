"""Coverage-guided fuzzing of what a network or a file can reach, for so many inputs; `make fuzz` takes longer."""

from __future__ import annotations

import importlib.util
from concurrent.futures import ThreadPoolExecutor

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
    with ThreadPoolExecutor(2) as pool:
        for name, done in zip(RUNS, pool.map(fuzz, RUNS), strict=True):
            assert done.ok, done.log
            assert done.runs == RUNS[name], done.log


def fuzz(name: str) -> coverage_guided.Fuzzed:
    return coverage_guided.fuzz(name, runs=RUNS[name], seconds=LIMIT_S)
