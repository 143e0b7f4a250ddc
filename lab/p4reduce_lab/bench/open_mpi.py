"""Open MPI as a peer: how its ranks are started on a network's hosts, and one of its ranks.

A rank is `python -m p4reduce_lab.bench.open_mpi SOCKET INTERFACE` under mpirun; it imports no torch.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p4reduce_lab.bench.case import Need
from p4reduce_lab.bench.links import SWITCH_ADDRESS, Host
from p4reduce_lab.bench.rank import Rank, Sum, later
from p4reduce_lab.bench.tensors import Kind
from p4reduce_lab.network import DATA

NEED = Need(
    "mpirun and mpi4py; in the checkout: pip install '.[peers]'",
    lambda: find_spec("mpi4py") is not None and _mpirun() is not None,
)
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
_AGENT = """#!/bin/sh
case $1 in
{cases}
esac
name=host${{1##*.}}
shift
exec nsenter --net=/proc/$pid/ns/net -- unshare --uts sh -c "echo $name >/proc/sys/kernel/hostname; $*"
"""
"""What mpirun starts in place of ssh. Hosts of one name would be one host to it."""


def _mpirun() -> str | None:
    return shutil.which("mpirun", path=os.pathsep.join((sysconfig.get_path("scripts"), os.environ.get("PATH", ""))))


def launch(folder: Path, hosts: Sequence[Host], world_size: int) -> list[str]:
    """Return the words before the command of a rank; ranks fill the hosts in order. `folder`: for a script."""
    words = [_mpirun() or "mpirun", "-n", str(world_size), "--bind-to", "none", "--mca", "pml", "ob1"]
    if world_size > len(os.sched_getaffinity(0)):
        words += ["--mca", "mpi_yield_when_idle", "1"]
    if not hosts:
        return [*words, "--map-by", ":OVERSUBSCRIBE"]
    agent = folder / "agent"
    cases = "\n".join(f"{host.address}) pid={host.namespace.pid} ;;" for host in hosts)
    agent.write_text(_AGENT.format(cases=cases), encoding="utf-8")
    agent.chmod(0o755)
    words += ["--host", ",".join(f"{host.address}:{world_size // len(hosts)}" for host in hosts)]
    words += ["--prtemca", "plm_ssh_agent", str(agent), "--prtemca", "prte_if_include", f"{SWITCH_ADDRESS}/24"]
    return [*words, "--mca", "btl", "self,sm,tcp", "--mca", "btl_tcp_if_include", DATA]


class MpiRank(Rank):
    """A rank of Open MPI."""

    def __init__(self, interface: str) -> None:
        """Wait until all ranks have started."""
        import mpi4py

        mpi4py.rc.threads = False
        from mpi4py import MPI

        self._world: Any = MPI.COMM_WORLD
        self._in_place = MPI.IN_PLACE
        super().__init__(self._world.rank, self._world.size, interface)

    def _same_moment(self) -> float:
        self._world.Barrier()
        moment: float = self._world.bcast(later())
        return moment

    def _sum_of(self, peer: str, kind: Kind, data: NDArray[np.float32]) -> Sum:
        def work() -> NDArray[np.float32]:
            self._world.Allreduce(self._in_place, data)
            return data

        return work


if __name__ == "__main__":
    MpiRank(sys.argv[2]).serve(sys.argv[1])
