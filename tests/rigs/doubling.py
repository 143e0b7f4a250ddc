"""A kernel module for child processes, which have a cache folder of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, Protocol

from rigs.fork_server import ForkServer
from rigs.limits import LIMIT_S

MODULE = '''
from p4reduce_runtime.kernels import kernel


@kernel("int64(int64)")
def doubled(number):
    """Return twice the number."""
    return 2 * number
'''

USE = """
from p4reduce_runtime import kernels
module = kernels.load("doubling")
stats = module.doubled.stats
print(module.doubled(21), module.doubled.py_func(21), sum(stats.cache_misses.values()), sum(stats.cache_hits.values()))
"""
COMPILED = ["42", "42", "1", "0"]
"""What USE prints when it had to compile."""
LOADED = ["42", "42", "0", "1"]
"""What it prints when it found the kernel in the cache."""


class Outcome(NamedTuple):
    """What a child process wrote."""

    words: list[str]
    log: list[str]
    """Lines of stderr."""


def environment_in(folder: Path) -> dict[str, str]:
    """Return the environment of a process that finds the kernel module, and has an empty cache folder."""
    (folder / "doubling.py").write_text(MODULE, encoding="utf-8")
    (folder / "cache").mkdir(mode=0o700)
    found = {"PYTHONPATH": str(folder), "P4REDUCE_CACHE_DIR": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    return os.environ | found


class Use(Protocol):
    """Runs a program to its end, by the command `before` it if there is one."""

    def __call__(self, environment: dict[str, str], program: str = USE, before: tuple[str, ...] = ()) -> Outcome: ...


def users(server: ForkServer, folder: Path) -> Use:
    """Return what runs programs: in forked processes, or new ones for those with a command before them."""
    script = folder / "program.py"

    def use(environment: dict[str, str], program: str = USE, before: tuple[str, ...] = ()) -> Outcome:
        if before:
            command = [*before, sys.executable, "-c", program]
            ended = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
            status, output, errors = ended.returncode, ended.stdout, ended.stderr
        else:
            script.write_text(program, encoding="utf-8")
            status, output, errors = server.run(str(script), environment=environment, timeout_s=LIMIT_S)
        assert status == 0, errors
        return Outcome(output.split(), errors.splitlines())

    return use


def kept(environment: dict[str, str]) -> list[Path]:
    """Return the files of compiled kernels in the cache."""
    files = Path(environment["P4REDUCE_CACHE_DIR"]).rglob("*")
    return sorted(file for file in files if file.is_file() and file.stat().st_size)
