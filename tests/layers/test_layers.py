"""The house: import-linter holds layers.toml, protocol/ does no I/O, and the switch's tests are its own."""

from __future__ import annotations

import ast
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from importlinter import cli

from rigs.limits import LIMIT_S

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


def imported(path: Path) -> Iterator[str]:
    """Yield the full names of what a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_the_protocol_does_no_io() -> None:
    """Sans I/O: no socket, no thread, no clock. Only the loop over a socket, and what calls it, may have these."""
    pure = {
        "__future__",
        "array",
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
        assert {name.partition(".")[0] for name in imported(path)} <= pure | more.get(path.name, set()), path.name


def test_the_switchs_tests_import_nothing_of_the_other_packages_and_no_rig_of_theirs() -> None:
    others = {"p4reduce", "p4reduce_contracts", "p4reduce_controller", "p4reduce_lab", "p4reduce_testbed"}
    tests = ROOT / "softswitch" / "tests"
    rigs, files = {file.stem for file in (tests / "rigs").glob("*.py")}, list(tests.rglob("*.py"))
    assert len(files) > 80 and len(rigs) > 10
    for file in files:
        for name in imported(file):
            root, _, inner = name.partition(".")
            assert root not in others, f"{file}: {name}"
            assert root != "rigs" or inner.partition(".")[0] in rigs, f"{file}: {name} is a rig of tests/"


COMMAND_LINE = {"grpc", "numba", "llvmlite", "cryptography", "click", "rich", "prometheus_client"}
WITHOUT: dict[str, tuple[str, set[str]]] = {
    "the package": ("import p4reduce", {"torch", *COMMAND_LINE}),
    "a command, its own package alone": (
        "from p4reduce_contracts.cli import main; main(['job', 'list', '--help'], standalone_mode=False)",
        {"p4reduce_lab", "p4reduce_switch", "torch"},
    ),
    "torch, which registers the backend, and then a group of one rank": (
        "import sys, torch.distributed as dist, torch\n"
        f"found = { {*COMMAND_LINE, 'p4reduce.pytorch.backend.group'} } & set(sys.modules)\n"
        "assert dist.is_backend_available('p4reduce') and not found, found\n"
        "dist.init_process_group('p4reduce', store=dist.HashStore(), rank=0, world_size=1)\n"
        "dist.all_reduce(torch.ones(3))",
        {"torch._dynamo"},
    ),
}


@pytest.mark.processes
def test_an_import_loads_what_it_needs_alone() -> None:
    for what, (code, unwanted) in WITHOUT.items():
        script = f"{code}\nimport sys; print(sorted({unwanted!r} & set(sys.modules)))"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 0 and done.stdout.splitlines()[-1] == "[]", f"{what}: {done.stdout}{done.stderr}"
