"""examples/train.py by itself, as a newcomer runs it; the demo's tests run it with several workers."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from p4reduce_lab.addresses import free_port
from p4reduce_lab.training import find_script


def train(*options: str) -> "subprocess.CompletedProcess[str]":
    """Run it as the only worker."""
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return subprocess.run(
        [sys.executable, str(find_script()), *options],
        env={**os.environ, **alone, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_it_trains_over_gloo() -> None:
    done = train("--epochs", "1", "--batch", "64")
    assert done.returncode == 0, done.stderr
    *steps, accuracy = done.stdout.splitlines()
    assert [line.partition(" loss ")[0] for line in steps] == ["step 10/22", "step 20/22", "step 22/22"]
    assert accuracy.startswith("test accuracy ") and accuracy.endswith(" %")


@pytest.mark.slow
def test_compressors_that_cannot_be_are_refused() -> None:
    refused = train("--compressor", "adacomp")
    assert refused.returncode == 2
    assert "--compressor needs --aggregation p4reduce" in refused.stderr
    refused = train("--aggregation", "p4reduce", "--compressor", "nosuch")
    assert refused.returncode == 2
    assert "argument --compressor: unknown compressor 'nosuch'; known are " in refused.stderr
    assert "adacomp" in refused.stderr and "none" in refused.stderr
