"""The house: import-linter holds layers.toml, and protocol/ does no I/O."""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from importlinter import cli

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ROOT / "layers.toml"


@pytest.fixture(autouse=True)
def loggers_stay() -> Iterator[None]:
    """import-linter configures logging, which disables every logger that there was, for all later tests."""
    yield
    for logger in logging.Logger.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            logger.disabled = False


def broken(config: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the contracts that import-linter says are broken; empty when none is."""
    status = cli.lint_imports(config_filename=str(config), cache_dir=None, no_cache=True)
    return "" if status == cli.EXIT_STATUS_SUCCESS else capsys.readouterr().out


def test_the_layers_hold(capsys: pytest.CaptureFixture[str]) -> None:
    assert not broken(LAYERS, capsys)


def imported_roots(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            yield str(node.module).partition(".")[0]


def test_the_protocol_does_no_io() -> None:
    """Sans I/O: no socket, no thread, no clock. Only the loop over a socket, and what calls it, may have these."""
    pure = {
        "__future__",
        "collections",
        "dataclasses",
        "enum",
        "functools",
        "heapq",
        "itertools",
        "math",
        "numpy",
        "sys",
        "types",
    }
    pure |= {"typing", "zlib", "p4reduce", "p4reduce_contracts", "p4reduce_runtime"}
    more = {"collective.py": {"importlib", "time"}, "fence.py": {"numba"}, "prefetch.py": {"numba", "llvmlite"}}
    files = set((ROOT / "worker" / "p4reduce" / "protocol").glob("*.py"))
    for path in files - {path for path in files if path.name in ("channel.py", "pump.py")}:
        assert set(imported_roots(path)) <= pure | more.get(path.name, set()), path.name
