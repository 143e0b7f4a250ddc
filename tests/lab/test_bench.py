"""The benchmarks can be started as modules."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["bmv2_rate", "all_reduce_rate"])
def test_a_benchmark_says_how_it_is_used(module: str) -> None:
    command = [sys.executable, "-m", f"p4reduce_lab.bench.{module}", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "--seconds" in done.stdout
