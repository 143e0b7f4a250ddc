"""The demo's training on a testbed's hosts, and a check of the sums under it."""

from __future__ import annotations

import json
import re
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from p4reduce_lab import report
from p4reduce_lab.processes import ProcessError
from p4reduce_lab.training import STALL_S, WAYS, Way, find_script
from p4reduce_testbed.errors import MissingTool, TestbedError
from p4reduce_testbed.testbed import Settings, Testbed, running_testbed
from p4reduce_testbed.topology import Topology
from p4reduce_testbed.workers import job, run_on_all

SUMS = 60
_NEEDED = ("torch", "sklearn", "matplotlib")
_STEP = re.compile(r"step (\d+)/(\d+) loss")
_WIDTH_OF_A_FILE = 120
_SHOWN_PARTS = 4


def train_on_testbed(
    topology: Topology, settings: Settings, out: Path, seeds: int = 1, epochs: int | None = None
) -> None:
    """Check the switch's sums, train as `p4reduce demo` does but on the topology's hosts, and report.

    Writes demo.png and report.json (the demo's shape, and "testbed" with what it ran on) and a folder of logs
    to `out`. Raises TestbedError or ProcessError.
    """
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise MissingTool(f"the training needs {', '.join(missing)}: pip install 'p4reduce[demo]'")
    began = time.monotonic()
    logs = out / "logs"
    runs: list[report.Run] = []
    click.echo(f"{len(topology.hosts)} hosts ({settings.network}) around a switch ({settings.target})")
    with running_testbed(topology, settings, logs) as testbed:
        click.echo(f"up after {time.monotonic() - began:.1f} s; checking sums")
        sums = check_sums(testbed)
        about = {
            "network": settings.network,
            "target": settings.target,
            "pipeline": testbed.pipeline.name,
            "sums": sums,
        }
        click.echo(f"{sums['sums']} sums of {sums['words']:,} words: {sums['mismatched_words']} words differ")
        if sums["mismatched_words"]:
            raise TestbedError(f"{sums['mismatched_sums']} of {sums['sums']} sums are wrong: see {logs}")
        for seed in range(seeds):
            for way in WAYS:
                runs.append(_train(testbed, way, seed, epochs, logs))
    seconds = time.monotonic() - began
    from p4reduce_lab.plot import draw

    report.save(out / "report.json", runs, seconds)
    _add(out / "report.json", about)
    draw(out / "demo.png", runs)
    _console().print(report.table(runs))
    click.echo(f"{out / 'demo.png'} and {out / 'report.json'} written, {seconds:.0f} s in all")


def check_sums(testbed: Testbed, sums: int = SUMS) -> dict[str, Any]:
    """Sums of known integers through the switch, compared on every host; the worst host's count."""
    script = str(Path(__file__).with_name("check_sums.py"))
    found: dict[int, dict[str, Any]] = {}

    def collect(rank: int, line: str) -> None:
        if line.startswith("{"):
            found[rank] = json.loads(line)

    with job(testbed, "check-sums") as name:
        command = [sys.executable, "-P", script, f"--sums={sums}"]
        run_on_all(testbed, "check", lambda host: command, name, on_line=collect, timeout_s=3 * STALL_S)
    if len(found) != len(testbed.topology.hosts):
        raise TestbedError(f"only {len(found)} of {len(testbed.topology.hosts)} hosts told what they summed")
    return max(found.values(), key=lambda one: int(one["mismatched_words"]))


def _train(testbed: Testbed, way: Way, seed: int, epochs: int | None, logs: Path) -> report.Run:
    """Train once; what the script measured."""
    name = f"{way.name}-{seed}"
    result = (logs / f"{name}.json").resolve()
    result.unlink(missing_ok=True)
    options = [f"--aggregation={way.aggregation}", f"--compressor={way.compressor}", f"--job={name}"]
    options += [f"--seed={seed}", f"--out={result}"] + ([f"--epochs={epochs}"] if epochs else [])
    command = ["env", "OMP_NUM_THREADS=1", sys.executable, str(find_script()), *options]
    shown = 0

    def progress(rank: int, line: str) -> None:
        nonlocal shown
        if rank == 0 and (match := _STEP.match(line)):
            step, steps = int(match[1]), int(match[2])
            if step * _SHOWN_PARTS // steps > shown:
                shown = step * _SHOWN_PARTS // steps
                click.echo(f"{way.name}, seed {seed}: {line}")

    def start(job_name: str) -> None:
        run_on_all(testbed, name, lambda host: command, job_name, on_line=progress, stall_s=STALL_S)

    if way.aggregation == "gloo":
        start(name)
    else:
        with job(testbed, name):
            start(name)
    try:
        measured = json.loads(result.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ProcessError(f"{name} wrote no result ({error}); its logs are in {logs}") from None
    assert isinstance(measured, dict)
    return {"name": way.name, **measured}


def _add(path: Path, testbed: dict[str, Any]) -> None:
    """Put what the report was measured on into it."""
    document = json.loads(path.read_text(encoding="utf-8"))
    document["testbed"] = testbed
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDTH_OF_A_FILE)
