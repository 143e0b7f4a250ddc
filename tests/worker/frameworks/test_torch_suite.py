"""torch's own tests of torch.distributed: what passes over gloo passes over the backend."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import torch

from rigs.fork_server import ForkServer
from rigs.script_runs import SCRIPTS, environment
from rigs.system import System

RANKS = 3
LIMIT_S = 1500.0
FEWEST = 80
"""Tests that gloo passes; about 200 need a GPU."""
TEXTS = {"test_monitored_barrier_gloo", "test_monitored_barrier_gloo_subgroup"} if torch.__version__ < "2.15" else set()
"""torch.distributed.monitored_barrier refuses every backend but the one that is called gloo, before torch 2.15."""


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.skipif(
    importlib.util.find_spec("expecttest") is None, reason="expecttest is not installed: make frameworks"
)
def test_tests_of_torch_that_pass_over_gloo_pass(
    named: System | None, torch_server: ForkServer, tmp_path: Path
) -> None:
    errors: dict[str, dict[str, str]] = {}
    for backend in ("gloo", "p4reduce"):
        folder = tmp_path / backend
        torch_server.launch(
            tmp_path,
            RANKS,
            str(SCRIPTS / "torch_suite.py"),
            backend,
            str(folder),
            environment=environment(named),
            timeout_s=LIMIT_S,
        )
        errors[backend] = {}
        for rank in range(RANKS):
            for line in (folder / f"outcome.{rank}").read_text().splitlines():
                said = json.loads(line)
                of_test = f"{said['outcome']} on rank {rank}" if "ERROR" in said["outcome"] else said["outcome"]
                if "ERROR" not in errors[backend].get(said["test"], ""):
                    errors[backend][said["test"]] = of_test
    passed = [test for test, outcome in errors["gloo"].items() if outcome == "ok"]
    assert len(passed) >= FEWEST
    failed = {test: errors["p4reduce"].get(test) for test in passed if errors["p4reduce"].get(test) != "ok"}
    assert failed.keys() == TEXTS, "\n".join(f"{test}: {outcome}" for test, outcome in failed.items())
