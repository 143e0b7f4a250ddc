"""Run the machine's own tools (`ip`, `tc`, `nft`) and check that they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from p4reduce_lab.errors import CommandError, MissingToolError

COMMAND_S = 30.0


def run(command: Sequence[str]) -> str:
    """Run a command and return what it printed. Raises MissingToolError or CommandError."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
    except FileNotFoundError:
        raise MissingToolError(f"{command[0]} is not on PATH") from None
    except subprocess.TimeoutExpired:
        raise CommandError(command, f"it still ran after {COMMAND_S:g} s") from None
    if done.returncode:
        raise CommandError(command, done.stderr or done.stdout)
    return done.stdout


def need_root() -> None:
    """Raise MissingToolError unless this process runs as root."""
    if os.geteuid() != 0:
        raise MissingToolError("network namespaces and interfaces need root: run with sudo")


def need(program: str, how: str) -> str:
    """Return the path of a program. Raises MissingToolError, which says how to get it."""
    path = shutil.which(program)
    if path is None:
        raise MissingToolError(f"{program} is not on PATH: {how}")
    return path
