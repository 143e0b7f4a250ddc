"""The backend "p4reduce" of torch.distributed, in processes, over a switch or a tree of them, and a controller."""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from p4reduce_contracts.jobs.client import JobClient
from rigs.fork_server import ForkServer
from rigs.limits import LIMIT_S, wait_until
from rigs.ports import LOOPBACK, own_port
from rigs.script_runs import environment
from rigs.system import RACKS, System, racks_of, running_system

HERE = Path(__file__).parent
CHECKS = "ranks_of_a_group.py"
TOLERANCE = {"ddp_bfloat16": 2.0**-8, "fsdp2_bfloat16": 2.0**-8}
"""Relative difference of losses: of bfloat16 each sum is rounded once here, and at every addition by gloo."""

Launch = Callable[..., list[str]]


def in_two_racks(fixture: str) -> pytest.MarkDecorator:
    """Run a test over a tree; the others of this file run over one switch."""
    return pytest.mark.parametrize(fixture, [RACKS], indirect=True)


@pytest.fixture
def launch(wide_system: System, torch_server: ForkServer, tmp_path: Path) -> Launch:
    """launch(ranks, script, *arguments, **variables): what each rank printed."""

    def run(ranks: int, script: str, *arguments: str, status: int = 0, **variables: str) -> list[str]:
        command = str(HERE / script), *arguments
        of_ranks = {**environment(wide_system), **variables}
        switch_of = wide_system.switch_of
        return torch_server.launch(
            tmp_path, ranks, *command, environment=of_ranks, timeout_s=LIMIT_S, status=status, switch_of=switch_of
        )

    return run


def jobs(system: System) -> set[str]:
    """Return the jobs' names. One that a killed rank of an earlier test made may still wait for its first rank."""
    with JobClient(system.controller.address("jobs on")) as client:
        return {job.name for job in client.list_jobs().jobs}


@pytest.mark.slow
@in_two_racks("wide_system")
def test_every_collective_of_every_dtype_is_right(wide_system: System, launch: Launch) -> None:
    checks = (
        "sums",
        "sums_of_floats_over_gloo",
        "assignment",
        "copies",
        "not_finite",
        "futures",
        "records",
        "functional=1",
        "sparse_gradients",
        "layouts",
    )
    before = jobs(wide_system)
    for output in launch(3, CHECKS, *checks, "hook=fp16", "hook=powersgd"):
        assert output.endswith("ok\n")
    wait_until(lambda: jobs(wide_system) <= before)  # by rank 0, or where that is too slow by the controller


@pytest.mark.fault(
    "no slots left on the switch for the job of a `new_group`: the group takes gloo on all its ranks, with one warning"
)
@pytest.mark.slow
def test_functional_collectives_do_not_block_each_other_and_a_subgroup_without_room_takes_gloo(launch: Launch) -> None:
    outputs = launch(2, CHECKS, "functional=1500", "no_room")
    assert sum(output.count("takes gloo for all collectives") for output in outputs) == 1


@pytest.mark.slow
def test_a_rank_that_fails_in_a_callback_or_dies_before_a_sum_over_gloo_is_noticed(launch: Launch) -> None:
    assert "rank 0 ended" in launch(2, CHECKS, "fails_in_a_callback", status=1)[1]
    assert "failed as it should" in launch(2, CHECKS, "dies_before_gloo", status=-signal.SIGKILL)[0]


@pytest.mark.slow
def test_groups_are_made_again_in_one_process(wide_system: System, launch: Launch) -> None:
    before = jobs(wide_system)
    launch(3, "made_again.py")
    wait_until(lambda: jobs(wide_system) <= before)  # by rank 0, or where that is too slow by the controller


@pytest.mark.slow
def test_every_text_that_names_the_backend_makes_a_group_that_sums(torch_server: ForkServer, tmp_path: Path) -> None:
    environment = {**os.environ, "TORCH_DISTRIBUTED_USE_TORCHCOMMS": "1"}
    command = str(Path(__file__).with_name("names.py")), str(tmp_path / "store")
    outputs = torch_server.launch(tmp_path, 3, *command, environment=environment, timeout_s=LIMIT_S)
    assert all("summed under each name" in output for output in outputs)


@pytest.mark.slow
def test_in_detail_debugging_with_different_collectives_and_a_late_rank(launch: Launch) -> None:
    checks = "sums", "layouts=contiguous", "different_collectives"
    launch(2, CHECKS, "join_with_a_compressor", P4REDUCE_COMPRESSOR="quantize")
    outputs = launch(2, CHECKS, *checks, "copies", "timeout", TORCH_DISTRIBUTED_DEBUG="DETAIL")
    assert "timed out as it should" in outputs[0]
    launch(2, CHECKS, *checks)


@pytest.mark.slow
@in_two_racks("wide_system")
def test_scripts_train_as_over_gloo(wide_system: System, launch: Launch, tmp_path: Path) -> None:
    before = jobs(wide_system)
    launch(4, "training_shapes.py", str(tmp_path / "losses"))
    compare_losses(tmp_path / "losses")
    wait_until(lambda: jobs(wide_system) <= before)  # by rank 0, or where that is too slow by the controller


@pytest.mark.slow
def test_shards_train_in_a_host_s_memory_alone_as_over_gloo(torch_server: ForkServer, tmp_path: Path) -> None:
    shapes = (
        "ddp",
        "fsdp1",
        "fsdp2",
        "fsdp2_shared",
        "fsdp2_state",
        "fsdp2_bfloat16",
        "hsdp",
        "tensor_parallel",
        "fsdp2_divide_factor",
    )
    command = str(HERE / "training_shapes.py"), str(tmp_path / "losses"), *shapes
    outputs = torch_server.launch(tmp_path, 4, *command, environment=environment(None), timeout_s=LIMIT_S)
    assert all("controller: none" in output for output in outputs)
    assert compare_losses(tmp_path / "losses") == len(shapes)


@pytest.mark.fault("a rank fails under one of two torchrun agents: both start theirs again, and a new job forms")
@pytest.mark.slow
def test_ranks_train_again_whose_agents_count_restarts_differently(
    wide_system: System, torch_server: ForkServer, tmp_path: Path
) -> None:
    command = (
        *("-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--max-restarts=3", "--rdzv-backend=c10d"),
        *(f"--rdzv-endpoint={LOOPBACK}:{own_port()}", "--rdzv-id=id", f"--local-addr={LOOPBACK}"),
        *("--monitor-interval=0.1", "--run-path", "--start-method=fork"),
        *(str(HERE / "restarted.py"), str(tmp_path / "failed")),
    )
    told = torch_server.launch(tmp_path, 2, *command, environment=environment(wide_system), timeout_s=LIMIT_S)
    assert all("restarts: 0 1" in each for each in told)


def compare_losses(file: Path) -> int:
    """Compare the losses of training_shapes.py over gloo and over p4reduce; return of how many shapes."""
    losses = json.loads(file.read_text())
    for shape, wanted in losses["gloo"].items():
        got = losses["p4reduce"][shape]
        assert isinstance(wanted, list), f"over gloo {shape} ended with {wanted}"
        assert isinstance(got, list) and len(got) == len(wanted), f"{shape}: {got}"
        for step, (one, other) in enumerate(zip(got, wanted, strict=True)):
            assert math.isclose(one, other, rel_tol=TOLERANCE.get(shape, 1e-6)), f"{shape}, step {step}"
    return len(losses["gloo"])


@pytest.mark.slow
def test_a_hook_s_checkpoint_keeps_the_sum_of_residues_for_any_number_of_ranks(launch: Launch, tmp_path: Path) -> None:
    outputs = launch(4, "checkpointed.py", str(tmp_path))
    assert all(output.endswith("done\n") for output in outputs)


@pytest.fixture
def impatient_system(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[System]:
    """One whose controller gives up ranks that are silent for 2 s."""
    with running_system(tmp_path, "default", racks_of(request)) as system:
        system.controller.end()
        system.start_controller(heartbeat_timeout_s=2)
        yield system


@pytest.mark.fault(
    "SIGKILL of all ranks of a torch.distributed group that made its own job: the controller removes the job"
)
@pytest.mark.slow
@in_two_racks("impatient_system")
def test_the_job_of_ranks_that_were_killed_ends_with_them(
    impatient_system: System, torch_server: ForkServer, tmp_path: Path
) -> None:
    torch_server.launch(
        tmp_path,
        2,
        *(str(HERE / CHECKS), "killed"),
        environment=environment(impatient_system),
        timeout_s=LIMIT_S,
        status=-signal.SIGKILL,
        switch_of=impatient_system.switch_of,
    )
    wait_until(lambda: not jobs(impatient_system), "the job of the killed ranks is still there")
