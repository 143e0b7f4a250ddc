"""Training scripts of tests/worker/frameworks, over gloo and over the backend "p4reduce"."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from rigs.limits import LIMIT_S
from rigs.ports import own_port
from rigs.system import System

SCRIPTS = Path(__file__).parents[1] / "worker/frameworks"
PYTHON = (sys.executable,)
TORCHRUN = (*PYTHON, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1")
Weights = list[dict[str, list[float]]]


def run(
    command: tuple[str, ...], script: str, backend: str, folder: Path, system: System | None, **variables: str
) -> Weights:
    """Run the script with this backend in place of p4reduce; return the weights of each rank after it."""
    path = copy_script(script, backend, folder)
    run_command(
        *command, str(path), str(folder / "weights"), environment=environment(system) | variables, folder=folder
    )
    return read_weights(folder)


def run_command(*command: str, environment: Mapping[str, str], folder: Path | None = None) -> str:
    """Return what a command printed; AssertionError if it fails."""
    done = subprocess.run(
        command,
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def copy_script(script: str, backend: str, folder: Path) -> Path:
    """Copy the script to `folder`, with this backend's name in place of p4reduce's."""
    folder.mkdir()
    shutil.copy(SCRIPTS / "problem.py", folder)
    lines = (SCRIPTS / script).read_text()
    assert '"p4reduce"' in lines
    path = folder / script
    path.write_text(lines.replace('"p4reduce"', f'"{backend}"'))
    return path


def environment(system: System | None) -> dict[str, str]:
    """Return the variables of a launch on this machine; None: it names no controller, and shares memory."""
    way = {"P4REDUCE_HOSTS": "on"} if system is None else {"P4REDUCE_CONTROLLER": system.controller.address("jobs on")}
    return {
        **os.environ,
        **way,
        "MASTER_ADDR": "127.0.0.1",  # where the launcher does not set it
        "MASTER_PORT": str(own_port()),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }


def read_weights(folder: Path) -> Weights:
    """Return the weights that each rank wrote, by rank."""
    return [json.loads(file.read_text()) for file in sorted(folder.glob("weights.[0-9]"))]


def compare(wanted: Weights, got: Weights) -> None:
    """Compare each rank's weights, within the rounding of the wire format."""
    assert wanted
    for mine, other in zip(wanted, got, strict=True):
        assert mine.keys() == other.keys()
        for name, numbers in mine.items():
            assert other[name] == pytest.approx(numbers, rel=1e-5, abs=1e-6), name
