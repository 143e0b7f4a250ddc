"""The ends of scripts that do not call destroy_process_group, and of ranks of which one fails in init_process_group."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from rigs.fork_server import ForkServer
from rigs.limits import LIMIT_S

BEGIN = """
import os, signal, sys, time, torch, torch.distributed as dist
from p4reduce.launch import launch, processes
from p4reduce.pytorch.backend import group, jobs
rank, size, store = int(sys.argv[1]), int(sys.argv[2]), dist.FileStore(sys.argv[3], int(sys.argv[2]))
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs ignore
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
def init(**more): dist.init_process_group("p4reduce", store=store, rank=rank, world_size=size, **more)
"""
CALLBACK = """
init()
if rank:
    store.wait(["registered"])
work = COLLECTIVE
if rank:
    work.wait()
else:
    done = work.get_future()
    done.then(lambda _: time.sleep(1.0))  # on gloo's thread, when `done` has its value
    store.set("registered", "")
    done.wait()
"""

ELSEWHERE = "processes._machine = lambda: f'machine{rank}'"
NAMED = "os.environ['P4REDUCE_CONTROLLER'] = '127.0.0.1:9'"
"""Each rank is on a machine of its own; and all wait for a controller that is not there."""


def ends(server: ForkServer, script: str, ranks: int, folder: Path) -> list[tuple[int, str]]:
    """Return the status and the output of each rank."""
    (path := folder / "script.py").write_text(BEGIN + script)
    logs = [folder / f"rank-{rank}.log" for rank in range(ranks)]
    with ExitStack() as stack:
        running = [
            server.start(log, str(path), str(rank), str(ranks), str(folder / "store"), environment=os.environ)
            for rank, log in enumerate(logs)
        ]
        for rank in running:
            stack.enter_context(rank)
        return [(rank.wait(LIMIT_S), log.read_text()) for rank, log in zip(running, logs, strict=True)]


@pytest.mark.processes
@pytest.mark.parametrize(
    "collective",
    [
        "dist.all_gather([torch.zeros(3) for _ in range(2)], torch.ones(3), async_op=True)",
        "dist.all_gather([torch.zeros(2, 3).t() for _ in range(2)], torch.ones(3, 2), async_op=True)",
        "dist.all_reduce(torch.eye(3).to_sparse(), op=dist.ReduceOp.SUM, async_op=True)",
    ],
)
def test_a_script_may_end_while_gloo_runs_a_callback(collective: str, torch_server: ForkServer, tmp_path: Path) -> None:
    for status, error in ends(torch_server, CALLBACK.replace("COLLECTIVE", collective), 2, tmp_path):
        assert status == 0 and "Traceback" not in error, error


@pytest.mark.processes
@pytest.mark.fault("a rank fails in init_process_group, or is killed there: the others name it at once")
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("os.environ['GLOO_SOCKET_IFNAME'] = 'nonesuch0'", "rank 1: .*nonesuch0"),
        ("os.environ['P4REDUCE_LAUNCH'] = 'maybe'", "rank 1: P4REDUCE_LAUNCH is 'maybe'"),
        ("init(pg_options=5)", "rank 1: pg_options is 5; "),
        ("launch._start = lambda *_: signal.raise_signal(signal.SIGINT)", "rank 1: KeyboardInterrupt"),
        ("launch._start = die", "rank 1: its process has ended"),
        ("group.ProcessGroupP4Reduce._connect = die", "rank 1: its process has ended"),
        (f"{ELSEWHERE}; group.gloo_address = die", "rank 1: its process has ended"),
        (f"{ELSEWHERE}; {NAMED}; jobs.load_all_kernels = die", "rank 1: its process has ended"),
    ],
)
def test_a_rank_that_fails_in_init_is_named(fault: str, cause: str, torch_server: ForkServer, tmp_path: Path) -> None:
    *of_all, of_one = fault.split("; ")
    script = "\n".join([*of_all, f"if rank == 1:\n    {of_one}", "init()"])
    for rank, (status, error) in enumerate(ends(torch_server, script, 3, tmp_path)):
        if rank != 1:
            assert status == 1, error
            assert cause.partition(".*")[0] in error and cause.rpartition(".*")[2] in error
