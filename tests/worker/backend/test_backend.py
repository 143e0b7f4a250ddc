"""The backend "p4reduce" of torch.distributed, in processes, over a switch and a controller."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from p4reduce_contracts.jobs.client import JobClient
from rigs.fork_server import ForkServer
from rigs.script_runs import TORCHRUN, environment, run_command
from rigs.system import System, running_system

HERE = Path(__file__).parent
CHECKS = "ranks_of_a_group.py"
LIMIT_S = 240.0
TOLERANCE = {"ddp_bfloat16": 2.0**-8, "fsdp2_bfloat16": 2.0**-8}
"""Relative difference of losses: of bfloat16 each sum is rounded once here, and at every addition by gloo."""

Launch = Callable[..., list[str]]


@pytest.fixture
def launch(wide_system: System, torch_server: ForkServer, tmp_path: Path) -> Launch:
    """launch(ranks, script, *arguments, **variables): what each rank printed."""

    def run(ranks: int, script: str, *arguments: str, **variables: str) -> list[str]:
        command = str(HERE / script), *arguments
        of_ranks = {**environment(wide_system), **variables}
        return torch_server.launch(tmp_path, ranks, *command, environment=of_ranks, timeout_s=LIMIT_S)

    return run


def jobs(system: System) -> list[str]:
    with JobClient(system.controller.address("jobs on")) as client:
        return [job.name for job in client.list_jobs().jobs]


@pytest.mark.slow
def test_every_collective_of_every_dtype_is_right(wide_system: System, launch: Launch) -> None:
    checks = "sums", "scattered_sums", "copies", "not_finite", "futures", "subgroups", "compiled"
    for output in launch(3, CHECKS, *checks, "hook=fp16", "hook=powersgd"):
        assert output.endswith("ok\n")
    assert jobs(wide_system) == []


@pytest.mark.slow
def test_in_detail_debugging_and_with_a_late_rank(launch: Launch) -> None:
    outputs = launch(2, CHECKS, "sums", "copies", "timeout", TORCH_DISTRIBUTED_DEBUG="DETAIL")
    assert "timed out as it should" in outputs[0]


@pytest.mark.slow
def test_scripts_train_as_over_gloo(wide_system: System, launch: Launch, tmp_path: Path) -> None:
    losses = {}
    for backend in ("gloo", "p4reduce"):
        launch(4, "training_shapes.py", backend, str(tmp_path / backend))
        losses[backend] = json.loads((tmp_path / backend).read_text())
    assert losses["gloo"].keys() == losses["p4reduce"].keys()
    for shape, wanted in losses["gloo"].items():
        got = losses["p4reduce"][shape]
        assert isinstance(wanted, list), f"over gloo {shape} ended with {wanted}"
        assert isinstance(got, list) and len(got) == len(wanted), f"{shape}: {got}"
        for step, (one, other) in enumerate(zip(got, wanted, strict=True)):
            assert math.isclose(one, other, rel_tol=TOLERANCE.get(shape, 1e-6)), f"{shape}, step {step}"
    assert jobs(wide_system) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["adacomp", "feedback"])
def test_a_hook_s_checkpoint_keeps_the_sum_of_residues_for_any_number_of_ranks(
    launch: Launch, tmp_path: Path, kind: str
) -> None:
    # DDP's first pass has other buckets, and so other blocks in which 8 bits are rounded
    same = "resume" if kind == "adacomp" else "sum"
    for ranks, task in ((3, "save"), (3, same), (2, "sum"), (4, "sum")):
        outputs = launch(ranks, "checkpointed.py", str(tmp_path), kind, task)
        assert all(output.endswith("done\n") for output in outputs)


@pytest.mark.slow
def test_a_subgroup_takes_gloo_where_the_switch_has_no_room(launch: Launch) -> None:
    outputs = launch(2, CHECKS, "no_room")
    assert sum(output.count("takes gloo for all collectives") for output in outputs) == 1


@pytest.mark.slow
def test_an_ordinary_script_needs_the_controller_s_address_alone(wide_system: System) -> None:
    """By torchrun, in interpreters of its own."""
    output = run_command(
        *TORCHRUN, "--nproc-per-node=2", str(HERE / "ordinary_script.py"), environment=environment(wide_system)
    )
    assert output.count("weights equal on all ranks") == 2


def test_importing_torch_registers_the_backend_and_imports_nothing_heavy() -> None:
    script = """
import sys, torch
assert torch.distributed.is_backend_available("p4reduce")
loaded = {name.partition(".")[0] for name in sys.modules}
assert not loaded & {"grpc", "numba", "llvmlite", "cryptography", "click", "rich", "prometheus_client"}, loaded
assert "p4reduce.pytorch.backend.group" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=LIMIT_S)


@pytest.mark.slow
def test_the_job_of_ranks_that_were_killed_ends_with_them(torch_server: ForkServer, tmp_path: Path) -> None:
    with running_system(tmp_path, "default") as system:
        system.controller.end()
        system.start_controller(heartbeat_timeout_s=2)
        command, variables = (str(HERE / CHECKS), "killed"), environment(system)
        torch_server.launch(tmp_path, 2, *command, environment=variables, timeout_s=LIMIT_S, status=-signal.SIGKILL)
        deadline = time.monotonic() + 60
        while jobs(system):
            assert time.monotonic() < deadline, "the job of the killed ranks is still there"
            time.sleep(0.1)
