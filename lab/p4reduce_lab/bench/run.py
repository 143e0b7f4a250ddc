"""`p4reduce bench`: run cases one after the other, each in a process of its own, and sum up their findings.

That process is `python -m p4reduce_lab.bench.run CASE OUT [--quick] [--networks]`: it writes the findings to the file
OUT. --networks says that it is alone in its network namespace, and so builds networks.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from p4reduce_lab.bench import report, store
from p4reduce_lab.bench.case import NETWORKS, Case, Findings, Run
from p4reduce_lab.bench.cases import BY_NAME, CASES, time_to_accuracy
from p4reduce_lab.errors import LabError, SetupError
from p4reduce_lab.network import CURRENT
from p4reduce_lab.processes import Children, follow, terminable
from p4reduce_runtime import terminal

_WIDTH_OF_A_FILE = 150
_MODULE = "p4reduce_lab.bench.run"


def run_bench(
    out: Path, names: Sequence[str] = (), *, quick: bool = False, again: bool = False, check: bool = False
) -> bool:
    """Run cases, and write results.json and thresholds.json to `out`.

    `names`: those of the cases, or what they begin with, up to a "-"; all for none.
    Returns whether no case failed and, with `check`, every threshold holds. Findings of an earlier run of the same
    software are kept, unless `again`. After a failed case, which is reported, the others run. Raises LabError
    for a name that is no case's. Nothing that it started still runs when it returns or raises.
    """
    selected = {
        name: [case for case in CASES if case.name == name or case.name.startswith(f"{name}-")] for name in names
    }
    if unknown := [name for name, found in selected.items() if not found]:
        raise LabError(f"there is no case {', '.join(unknown)}; there are: {', '.join(BY_NAME)}")
    cases = [case for case in CASES if not names or any(case in found for found in selected.values())]
    console = terminal.console(_WIDTH_OF_A_FILE, markup=True)
    folder = out / ("quick-cases" if quick else "cases")
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    console.print(_preamble(), style="dim")
    findings: dict[str, Findings] = {}
    why_not: dict[str, str] = {}
    failed = False
    for number, case in enumerate(cases, 1):
        path = folder / f"{case.name}.json"
        if again:
            path.unlink(missing_ok=True)
        console.print(f"[bold]{number}/{len(cases)} {case.name}[/]: {case.about}")
        found = store.load(path, quick=quick)
        if found is not None:
            lines = (f"  {series.text}" for series in found.series)
            console.print(f"  kept from an earlier run ({folder})", *lines, sep="\n", markup=False, soft_wrap=True)
        elif missing := case.missing():
            why_not[case.name] = f"needs {'; '.join(missing)}"
            console.print(f"  skipped: {why_not[case.name]}")
        else:
            try:
                case.prepare(out)
                found = _run_case(case, path, quick, console)
            except LabError as error:
                failed, why_not[case.name] = True, error.message
                console.print(error.message, style="red", markup=False)
        if found is not None:
            findings[case.name] = found
    results = report.judge(cases, findings)
    report.write(out, findings, why_not, results, quick=quick, seconds=time.monotonic() - began, console=console)
    for path in time_to_accuracy.write(out, findings):
        console.print(f"{path} written")
    return not failed and (not check or all(result.holds for result in results))


def _preamble() -> str:
    cores = len(os.sched_getaffinity(0))
    words = f"Switch, controller, all workers and the kernel's network share {cores} processor cores."
    if not NETWORKS.there():
        words += f" Loopback only: shaped links take {NETWORKS.what}."
    return words


def _run_case(case: Case, path: Path, quick: bool, console: Console) -> Findings:
    """Run a case in a process; where networks can be built, in a network namespace of its own. Raises ProcessError."""
    command = [sys.executable, "-P", "-m", _MODULE, case.name, str(path)]
    command += ["--quick"] if quick else []
    if NETWORKS.there():
        command = ["unshare", "--net", "--", *command, "--networks"]
    deadline = time.monotonic() + case.limit_s
    with terminable(), Children(path.parent) as children, console.status("") as spinner:
        child = children.start(case.name, command)
        follow(
            [child],
            lambda _, line: console.print(f"  {line}", markup=False, soft_wrap=True),
            lambda: spinner.update(f"{case.name}, {deadline - time.monotonic():.0f} s left"),
            timeout_s=case.limit_s,
        )
    found = store.load(path, quick=quick)
    if found is None:
        raise child.failure("wrote no result")
    return found


def main() -> None:
    """Run the case that the arguments name, in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=sorted(BY_NAME))
    parser.add_argument("out", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--networks", action="store_true")
    args = parser.parse_args()
    logs = args.out.parent / f"{args.case}-logs"
    shutil.rmtree(logs, ignore_errors=True)  # an earlier run's controller has left its state there
    logs.mkdir(parents=True)
    if args.networks:
        CURRENT.run("ip", "link", "set", "lo", "up")
    with terminable(), Children(logs) as children:
        run = Run(args.quick, logs, children, networks=args.networks)
        try:
            BY_NAME[args.case].measure(run)
        except SetupError as error:
            run.skip(args.case, str(error))
    store.save(args.out, run.findings, quick=args.quick)


if __name__ == "__main__":
    try:
        main()
    except LabError as error:
        raise SystemExit(error.message) from error
