"""The lab's trainings on a testbed's hosts, and a check of the sums under them."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import click

from p4reduce_lab import demo_report
from p4reduce_lab.errors import MissingToolError, SetupError
from p4reduce_lab.training import INSTALL, STALL_S, Output, Plan, Result, missing_packages
from p4reduce_runtime import terminal
from p4reduce_testbed.testbed import Settings, Testbed, running_testbed
from p4reduce_testbed.topology import Topology

SUMS = 60
_WIDTH_OF_A_FILE = 120


def train_on_testbed(
    topology: Topology, settings: Settings, out: Path, seeds: int = 1, epochs: int | None = None
) -> None:
    """Check the sums, train all variants on the topology's hosts, and report.

    Writes what demo_report.write does, "testbed" in report.json with what it ran on, and a folder of logs to
    `out`. Raises SetupError or ProcessError.
    """
    if missing := missing_packages():
        raise MissingToolError(f"the training needs {', '.join(missing)}; {INSTALL}")
    began = time.monotonic()
    logs = out / "logs"
    switches = "a switch" if len(topology.switches) == 1 else f"{len(topology.switches)} switches"
    click.echo(f"{len(topology.hosts)} hosts ({settings.network}) around {switches} ({settings.target})")
    with running_testbed(topology, settings, logs) as testbed:
        click.echo(f"up after {time.monotonic() - began:.1f} s; checking sums")
        sums = check_sums(testbed)
        click.echo(f"{sums['sums']} sums of {sums['words']:,} words: {sums['mismatched_words']} words differ")
        if sums["mismatched_words"]:
            raise SetupError(f"{sums['mismatched_sums']} of {sums['sums']} sums are wrong: see {logs}")
        results = train(testbed, Plan(seeds, epochs))
    about = {"network": settings.network, "target": settings.target, "pipeline": testbed.pipeline.name, "sums": sums}
    demo_report.write(
        out, results, time.monotonic() - began, terminal.console(_WIDTH_OF_A_FILE, markup=True), {"testbed": about}
    )


def check_sums(testbed: Testbed, sums: int = SUMS) -> dict[str, Any]:
    """Compare sums of known integers through the switch on every host; return the counts with the most errors."""
    script = str(Path(__file__).with_name("check_sums.py"))
    found: dict[int, dict[str, Any]] = {}

    def collect(rank: int, line: str) -> None:
        if line.startswith("{"):
            found[rank] = json.loads(line)

    hosts = len(testbed.topology.hosts)
    with testbed.system.job("check-sums", hosts) as name:
        command = [sys.executable, "-P", script, f"--sums={sums}"]
        testbed.run_on_all("check", lambda host: command, name, on_line=collect, timeout_s=3 * STALL_S)
    if len(found) != hosts:
        raise SetupError(f"only {len(found)} of {hosts} hosts reported their sums")
    return max(found.values(), key=lambda counts: int(counts["mismatched_words"]))


def train(testbed: Testbed, plan: Plan) -> list[Result]:
    """Do the plan's trainings on the testbed's hosts and return their results."""
    output = Output(click.echo)
    with testbed.system.job("train", len(testbed.topology.hosts)) as job:
        command = ["env", "OMP_NUM_THREADS=1", sys.executable, "-P", *plan.command(job)]
        testbed.run_on_all("train", lambda host: command, job, on_line=output.on_line, stall_s=STALL_S)
    return output.results
