"""The whole demo, short: it works, its errors name what failed, and no process is left."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from p4reduce_lab.demo import run_demo
from p4reduce_lab.processes import Children, ProcessError
from p4reduce_lab.system import running_system
from p4reduce_lab.training import VARIANTS, Plan, missing_packages, train
from rigs.limits import LIMIT_S
from rigs.running import children_of, with_text

MISSING = missing_packages()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")]

DENSE = Plan(epochs=500, variants=["p4reduce-dense"])


def rank_pid(children: Children, rank: int) -> int:
    """Return the process of a rank. Their parent forks them in order, and the system lists them in that order."""
    ranks = set(with_text(str(children.logs / "workers.log")))
    [parent] = [pid for pid in ranks if ranks.intersection(children_of(pid))]
    return [pid for pid in children_of(parent) if pid in ranks][rank]


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    with Children(tmp_path) as children:
        yield children
    assert not with_text(str(tmp_path)), "a process was left behind"


@pytest.mark.processes
def test_the_whole_demo_over_two_racks_with_lost_frames_in_the_shape_that_fits_tofino(tmp_path: Path) -> None:
    """Frames get their shape from the lease alone: the training script, and the worker, are the same."""
    printed, pipeline = io.StringIO(), "tofino1-4x8"
    console = Console(file=printed, width=130)
    run_demo(tmp_path, seeds=1, epochs=1, console=console, pipeline=pipeline, racks=2, drop_chance=0.005)
    text, report = printed.getvalue(), json.loads((tmp_path / "report.json").read_text())
    assert f"pipeline {pipeline}" in (tmp_path / "logs" / "controller.log").read_text()
    gloo, dense, adacomp = report["runs"]
    assert [run["name"] for run in report["runs"]] == list(VARIANTS)
    assert gloo["losses"] == pytest.approx(dense["losses"], rel=1e-3)
    assert dense["retransmissions"] > 0
    assert gloo["up_bytes_per_step"] is None or gloo["up_bytes_per_step"] > report["ring_bytes_formula"]
    for key in ("up_bytes_per_step", "down_bytes_per_step"):
        assert dense[key] > 3 * adacomp[key] > 0
    for variant in VARIANTS:
        assert f"\n{variant}, seed 0: step " in text
    assert (tmp_path / "demo.png").stat().st_size > 10_000
    trunks = report["trunks"]
    assert 0.4 < trunks["up"] / trunks["ranks_up"] < 0.7, "two ranks a rack; AdaComp's sums are less sparse"
    assert f"Between the switches: {trunks['up']:,} B up" in text
    assert not with_text(str(tmp_path))


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere TCP is not counted")
def test_many_trainings_keep_no_descriptor_open() -> None:
    words = [*Plan(seeds=8, epochs=1, variants=["gloo-dense"]).command(""), "--ranks=1"]
    limited = 'ulimit -n 128; exec "$0" "$@"'
    command = ["/bin/sh", "-c", limited, sys.executable, *words]
    done = subprocess.run(command, check=True, timeout=LIMIT_S, stdout=subprocess.PIPE, text=True)
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [result["seed"] for result in results] == list(range(8))
    assert all(result["up_bytes_per_step"] is not None for result in results)


@pytest.mark.processes
@pytest.mark.fault("SIGKILL of a worker of the demo: the run ends with an error that names the cause")
@pytest.mark.fault("SIGKILL of the switch under the demo: an error that names the switch")
def test_a_killed_worker_or_switch_ends_the_run(children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []

    def kill_one(said: str) -> None:
        if not killed:
            killed.append(rank_pid(children, 2))
            os.kill(killed[0], signal.SIGKILL)

    def kill_switch(said: str) -> None:
        os.kill(system.switches[0].pid, signal.SIGKILL)

    with running_system(children) as system:
        system.client.create_job("worker", 4)
        with pytest.raises(ProcessError) as caught:
            train(children, DENSE, "worker", system, kill_one)
        assert "workers failed with status 1" in caught.value.message
        assert "process 2 terminated with signal SIGKILL" in caught.value.message
        waiting = ["-uc", "import time; print('step 1/500 loss 1'); time.sleep(600)"]  # as ranks without a switch do
        monkeypatch.setattr(Plan, "command", lambda plan, job: waiting)
        with pytest.raises(ProcessError, match="switch ended with status -9"):
            train(children, DENSE, "switch", system, kill_switch)
