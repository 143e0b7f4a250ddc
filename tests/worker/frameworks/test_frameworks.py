"""Frameworks over the backend "p4reduce": each trains to the weights that it has over gloo.

And torch's own tests of torch.distributed: what passes over gloo passes over the backend. `make test` skips them, as
they need expecttest. They sum float32 and complex64 alone, and take three ranks 37 s of processor time.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from rigs.fork_server import ForkServer
from rigs.limits import LIMIT_S
from rigs.script_runs import PYTHON, SCRIPTS, TORCHRUN, compare, copy_script, environment, read_weights, run
from rigs.system import System

TWO = (*TORCHRUN, "--nproc-per-node=2")
AS_MPI_SAYS = 'RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE exec "$@"'
TWO_BY_MPI = "mpirun", "-np", "2", "--allow-run-as-root", "--oversubscribe", "bash", "-c", AS_MPI_SAYS, "-", *PYTHON


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for the names of Ray's Unix sockets, of 107 characters at most."""
    with tempfile.TemporaryDirectory(prefix="p4", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def installed(request: pytest.FixtureRequest) -> None:
    """Before the system is started."""
    if importlib.util.find_spec(request.param) is None and shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed: make frameworks; of mpirun: apt install openmpi-bin")


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize(
    ("installed", "script", "command"),
    [
        ("lightning", "lightning_trainer.py", PYTHON),
        ("lightning", "lightning_fabric.py", TWO),
        ("accelerate", "accelerator.py", TWO),
        ("transformers", "hf_trainer.py", TWO),
        ("ray", "ray_train.py", PYTHON),
        ("torchft", "torchft_group.py", TWO),
        ("mpirun", "plain_ddp.py", TWO_BY_MPI),
    ],
    ids=lambda value: value if str(value).endswith(".py") else "",
    indirect=["installed"],
)
def test_weights_are_those_over_gloo(
    installed: None, script: str, command: tuple[str, ...], named: System | None, tmp_path: Path, short_folder: Path
) -> None:
    runs = [
        run(
            command,
            script,
            backend,
            tmp_path / backend,
            named,
            HF_HUB_OFFLINE="1",
            RAY_TMPDIR=str(short_folder),
            RAY_USAGE_STATS_ENABLED="0",
        )
        for backend in ("gloo", "p4reduce")
    ]
    compare(*runs)


@pytest.mark.fault(
    "end of a rank under torchrun, which starts all ranks again with the store of the first attempt: a new job "
    "forms; the weights are those of a run without interruption over gloo"
)
@pytest.mark.slow
@pytest.mark.processes
def test_a_restarted_run_has_the_weights_of_one_without_interruption(
    named: System | None, torch_server: ForkServer, tmp_path: Path
) -> None:
    torchrun = *TWO[1:], "--max-restarts=1", "--run-path", "--start-method=fork"  # ranks that need not import torch
    for backend, ranks, launcher, variables in (("gloo", 2, (), {}), ("p4reduce", 1, torchrun, {"ENDS_ONCE": "yes"})):
        folder = tmp_path / backend
        command = *launcher, str(copy_script("plain_ddp.py", backend, folder)), str(folder / "weights")
        of_ranks = environment(named) | variables | {"PYTHONPATH": str(folder)}
        torch_server.launch(folder, ranks, *command, environment=of_ranks, timeout_s=LIMIT_S)
    compare(*(read_weights(tmp_path / backend) for backend in ("gloo", "p4reduce")))


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.skipif(importlib.util.find_spec("lightning") is None, reason="lightning is not installed: make frameworks")
def test_lightning_s_checkpoint_has_the_hook_s_state(named: System | None, tmp_path: Path) -> None:
    whole = run(PYTHON, "lightning_hook.py", "p4reduce", tmp_path / "whole", named)
    after_one = str(tmp_path / "whole/epoch=0.ckpt")
    resumed = run(PYTHON, "lightning_hook.py", "p4reduce", tmp_path / "resumed", named, RESUMED=after_one)
    assert resumed == whole


RANKS = 3
SUITE_S = 1500.0
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
            timeout_s=SUITE_S,
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
