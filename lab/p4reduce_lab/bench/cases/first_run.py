"""The time from `pip install` to the first sum of two ranks, with nothing compiled; and of a later initialisation."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path

import numpy as np

from p4reduce_lab.addresses import LOOPBACK, free_address, free_port
from p4reduce_lab.bench import links
from p4reduce_lab.bench.case import TRAINING_PACKAGES, Case, Need, Run, Series, Threshold, on_two_cores

ON_TWO_CORES = Threshold("45 s / pip install to the first sum, two cores, two ranks", 1.0)
INITIALISATION = Threshold("2.5 s / init_process_group with compiled kernels", 1.0)
_LIMIT_S = 300.0
_CHECKOUT = Path(__file__).resolve().parents[4]
_SCRIPT = """import time, torch, torch.distributed as dist
began = time.monotonic()
dist.init_process_group("p4reduce")
print("initialised in", time.monotonic() - began)
ones = torch.ones(250_000)
dist.all_reduce(ones)
assert ones[0] == 2
print("first sum", flush=True)
dist.destroy_process_group()"""


def measure(run: Run) -> None:
    """Install it, start everything and sum, again and again in new folders."""
    with on_two_cores():
        found = np.array([_first_run(run, number) for number in range(1 if run.quick else run.repetitions)])
    for what, seconds in zip(("pip install", "from there to the first sum", "later init"), found.T, strict=True):
        run.add(Series(what, "p4reduce", str(links.LOOPBACK), "s", seconds.tolist()))
    run.ratio(ON_TWO_CORES.name, [45.0], (found[:, 0] + found[:, 1]).tolist())
    run.ratio(INITIALISATION.name, [2.5], found[:, 2].tolist())
    run.note("first-run: torch and all else that p4reduce needs is installed already")


def _first_run(run: Run, number: int) -> tuple[float, float, float]:
    """Return the seconds of the installation, from there to the first sum, and of an initialisation after it."""
    home = run.folder / f"home-{number}"
    venv.create(home, symlinks=True)
    (site,) = (home / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    python, program = str(home / "bin/python"), str(home / "bin/p4reduce")
    jobs, p4runtime, workers = free_address(), ["--p4runtime", free_address()], free_address(socket.SOCK_DGRAM)
    launch = {"MASTER_ADDR": LOOPBACK, "WORLD_SIZE": "2", "P4REDUCE_CONTROLLER": jobs}
    launch |= {"P4REDUCE_CACHE_DIR": str(home / "cache"), "XDG_STATE_HOME": str(home / "state")}
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", python, "install", "--no-deps", "--no-build-isolation"]
    began = time.monotonic()
    subprocess.run([*pip, str(_CHECKOUT)], check=True, timeout=_LIMIT_S)
    installed = time.monotonic()
    for name, *options in (("switch", "--listen", workers), ("controller", "--switch", workers, "--listen", jobs)):
        child = run.children.start(f"{name} {number}", [program, name, "run", *p4runtime, *options], launch)
        child.wait_line("ready:", _LIMIT_S)
    _, ended = _sum(run, f"run {number}", [python, "-c", _SCRIPT], launch)
    subprocess.run([program, "warm"], env=os.environ | launch, check=True, timeout=_LIMIT_S)
    later_s, _ = _sum(run, f"run {number}, later", [python, "-c", _SCRIPT], launch)
    run.children.stop()
    shutil.rmtree(home)
    return installed - began, ended - installed, later_s


def _sum(run: Run, name: str, script: list[str], launch: dict[str, str]) -> tuple[float, float]:
    """Sum over two ranks; return how many seconds the initialisation took, and when the sum was there."""
    launch = launch | {"MASTER_PORT": str(free_port())}
    ranks = [run.children.start(f"{name}, {rank}", script, launch | {"RANK": str(rank)}) for rank in range(2)]
    initialised = ranks[0].wait_line(r"initialised in (\S+)\nfirst sum", _LIMIT_S)
    ended = time.monotonic()
    for rank in ranks:
        rank.wait(_LIMIT_S)
    return float(initialised[1]), ended


CASE = Case(
    "first-run",
    "from pip install to the first sum, with nothing compiled",
    measure,
    needs=(Need("a checkout, with pip", (_CHECKOUT / "pyproject.toml").exists), TRAINING_PACKAGES),
    thresholds=(ON_TWO_CORES, INITIALISATION),
    limit_s=1800.0,
)
