"""The kernels interpreted, as with P4REDUCE_KERNELS=off: the same frames, counts, times and sums as compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from p4reduce_runtime import kernels
from rigs import random_traffic

TESTS = Path(__file__).parents[2]
TRAFFIC = [(seed, harm) for seed in range(8) for harm in (0.0, 0.02, 0.15)]


def interpreted(*command: str) -> str:
    """Run a Python command without compiled kernels, warnings as errors; return what it prints."""
    environment = {**os.environ, "P4REDUCE_KERNELS": "off", "PYTHONPATH": str(TESTS)}
    command = (sys.executable, "-W", "error", *command)
    done = subprocess.run(command, env=environment, cwd=TESTS, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.skipif(not kernels.compiles(), reason="kernels are not compiled")
def test_interpreted_and_compiled_do_the_same_with_random_traffic() -> None:
    arguments = [f"{seed}:{harm}" for seed, harm in TRAFFIC]
    found = interpreted("-m", "rigs.random_traffic", *arguments).split()
    assert found == [random_traffic.play(seed, harm) for seed, harm in TRAFFIC]


def test_the_rules_hold_interpreted() -> None:
    rules = "worker/protocol/test_engine_rules.py", "worker/protocol/test_engine_growth.py"
    said = interpreted("-m", "pytest", "-q", "-p", "no:cacheprovider", *rules)
    assert " passed" in said and " failed" not in said
