"""Kernels interpreted, in a process of its own; and results compared bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from rigs.limits import LIMIT_S
from rigs.python_path import PYTHONPATH

TESTS = Path(__file__).parents[1]


def passes_interpreted(*tests: str) -> None:
    """Run tests, named as pytest's arguments, without compiled kernels, warnings as errors."""
    environment = {**os.environ, "P4REDUCE_KERNELS": "off", "PYTHONPATH": PYTHONPATH}
    command = (sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
    done = subprocess.run(command, env=environment, cwd=TESTS, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert " passed" in done.stdout and " failed" not in done.stdout


def bits(value: Any) -> Any:
    """Nested values with each array and tensor as its type and bytes: equal only where every bit is."""
    if isinstance(value, torch.Tensor):
        value = value.detach().contiguous().numpy()
    if hasattr(value, "tobytes"):
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, dict):
        return {key: bits(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [bits(inner) for inner in value]
    if isinstance(value, float):
        return value.hex()
    return value
