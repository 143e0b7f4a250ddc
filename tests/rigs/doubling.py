"""A kernel module with a cache folder of its own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from p4reduce_runtime import cache, kernels

MODULE = '''
from p4reduce_runtime.kernels import kernel


@kernel()
def doubled(number: int) -> int:
    """Return twice the number."""
    return 2 * number
'''
USE = """
import doubling as module
stats = module.doubled.stats
print(module.doubled(21), module.doubled.py_func(21), sum(stats.cache_misses.values()), sum(stats.cache_hits.values()))
"""
"""A program that uses the kernel, and prints what it got, and how often it compiled and loaded."""
COMPILED = ["42", "42", "1", "0"]
"""The words that USE prints when it had to compile."""
LOADED = ["42", "42", "0", "1"]
"""The words that USE prints when it found the kernel in the cache."""


class Outcome(NamedTuple):
    """The output of a use of the kernel, as USE prints it, and its log."""

    words: list[str]
    log: list[str]


Use = Callable[[], Outcome]


def forget() -> None:
    """Make this process look for kernel modules, and for its cache folder, as a new one does."""
    for name in ("doubling", "views", "called", "included", "apart"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    kernels._folder.cache_clear()
    kernels._text_digest.cache_clear()
    cache._said.clear()


def used(caplog: pytest.LogCaptureFixture) -> Outcome:
    """Use the kernel as USE does, in this process."""
    forget()
    caplog.clear()
    doubled = importlib.import_module("doubling").doubled
    misses, hits = (sum(counts.values()) for counts in (doubled.stats.cache_misses, doubled.stats.cache_hits))
    return Outcome([str(word) for word in (doubled(21), doubled.py_func(21), misses, hits)], list(caplog.messages))


def kept(environment: dict[str, str]) -> list[Path]:
    """Return the files of compiled kernels in the cache."""
    files = Path(environment["P4REDUCE_CACHE_DIR"]).rglob("*")
    return sorted(file for file in files if file.is_file() and file.stat().st_size)
