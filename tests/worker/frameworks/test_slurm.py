"""examples/slurm.sbatch on a Slurm of this machine: a controller, a node and four tasks."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from rigs.limits import LIMIT_S
from rigs.ports import own_port
from rigs.script_runs import TORCHRUN, compare, copy_script, environment, read_weights, run
from rigs.system import System

SCRIPT = Path(__file__).parents[3] / "examples/slurm.sbatch"
RANKS = 4

CONFIGURATION = """
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
AuthType=auth/none
CredType=cred/none
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SlurmdParameters=config_overrides
NodeName={node} NodeAddr=127.0.0.1 CPUs={ranks}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[Mapping[str, str]]:
    """Run slurmctld and slurmd; give the environment of Slurm's commands."""
    folder.mkdir()
    configuration = folder / "slurm.conf"
    node = socket.gethostname().partition(".")[0]
    configuration.write_text(
        CONFIGURATION.format(
            ports=(own_port(), own_port()), user=getpass.getuser(), folder=folder, node=node, ranks=RANKS
        )
    )
    variables = {**os.environ, "SLURM_CONF": str(configuration)}
    daemons = []
    try:
        for name in ("slurmctld", "slurmd"):
            with (folder / f"{name}.log").open("w") as log:
                daemons.append(subprocess.Popen([name, "-D"], env=variables, stdout=log, stderr=log))
        deadline = time.monotonic() + LIMIT_S
        while b"idle" not in subprocess.run(["sinfo", "-h"], env=variables, capture_output=True, check=False).stdout:
            logs = "".join(log.read_text() for log in folder.glob("*.log"))
            assert time.monotonic() < deadline, f"Slurm has no idle node: {logs}"
            time.sleep(0.1)
        yield variables
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(LIMIT_S)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.skipif(shutil.which("slurmctld") is None, reason="slurmctld is not installed: apt install slurm-wlm")
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="slurmd needs root")
def test_four_tasks_have_the_weights_of_four_ranks_over_gloo(named: System | None, tmp_path: Path) -> None:
    wanted = run((*TORCHRUN, f"--nproc-per-node={RANKS}"), "plain_ddp.py", "gloo", tmp_path / "gloo", named)
    folder = tmp_path / "p4reduce"
    script = copy_script("plain_ddp.py", "p4reduce", folder)
    with slurm(tmp_path / "slurm") as variables:
        submitted = subprocess.run(
            [
                "sbatch",
                "--wait",
                f"--ntasks={RANKS}",
                "--output=said",
                str(SCRIPT),
                str(script),
                str(folder / "weights"),
            ],
            env={**environment(named), **variables, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            cwd=folder,
            timeout=LIMIT_S,
            check=False,
        )
    assert submitted.returncode == 0, (folder / "said").read_text()
    compare(wanted, read_weights(folder))
