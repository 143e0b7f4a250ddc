"""`p4reduce bench`: run cases one after the other, each in a process of its own, and sum up their findings."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from p4reduce_lab.bench import report
from p4reduce_lab.bench.case import NETWORKS, Case, Findings
from p4reduce_lab.bench.cases import BY_NAME, CASES
from p4reduce_lab.bench.store import Store
from p4reduce_lab.network import current_id
from p4reduce_lab.processes import POLL_S, Child, Children, LogReader, ProcessError, terminable
from p4reduce_lab.report import console as console_of

_WIDTH_OF_A_FILE = 150
_MODULE = "p4reduce_lab.bench.inside"


def select(names: Sequence[str]) -> list[Case]:
    """Return the cases of these names, all of them for none, in their own order. Raises ProcessError."""
    if unknown := [name for name in names if name not in BY_NAME]:
        raise ProcessError(f"there is no case {', '.join(unknown)}; there are: {', '.join(BY_NAME)}")
    return [case for case in CASES if not names or case.name in names]


def run_bench(
    out: Path,
    names: Sequence[str] = (),
    *,
    quick: bool = False,
    again: bool = False,
    check: bool = False,
    console: Console | None = None,
) -> bool:
    """Run cases, and write results.json, thresholds.json, a table and plots to `out`.

    Returns whether no case failed and, with `check`, every threshold holds. Findings of an earlier run of the same
    software are kept, unless `again`. After a failed case, which is reported, the others run. Raises ProcessError
    for a name that is no case's. Nothing that it started still runs when it returns or raises.
    """
    cases = select(names)
    console = console or console_of(_WIDTH_OF_A_FILE)
    store = Store(out, quick)
    began = time.monotonic()
    console.print(_preamble(), style="dim")
    findings: dict[str, Findings] = {}
    why_not: dict[str, str] = {}
    failed = False
    for number, case in enumerate(cases, 1):
        if again:
            store.forget(case.name)
        console.print(f"[bold]{number}/{len(cases)} {case.name}[/]: {case.about}")
        found = store.load(case.name)
        if found is not None:
            console.print(f"  kept from an earlier run ({store.folder})")
        elif missing := case.missing():
            why_not[case.name] = f"needs {'; '.join(missing)}"
            console.print(f"  skipped: {why_not[case.name]}")
        else:
            try:
                found = _run_case(case, store, quick, console)
            except ProcessError as error:
                failed, why_not[case.name] = True, error.message
                console.print(error.message, style="red", markup=False)
        if found is not None:
            findings[case.name] = found
    results = report.judge(cases, findings)
    report.write(out, cases, findings, why_not, results, quick=quick, seconds=time.monotonic() - began, console=console)
    return not failed and (not check or all(result.holds for result in results))


def _preamble() -> str:
    cores = len(os.sched_getaffinity(0))
    words = f"Switch, controller, all workers and the kernel's network share {cores} processor cores."
    if not NETWORKS.there():
        words += f" Loopback only: shaped links take {NETWORKS.what}."
    return words


def _run_case(case: Case, store: Store, quick: bool, console: Console) -> Findings:
    """Run a case in a process; where networks can be built, in a network namespace of its own. Raises ProcessError."""
    command = [sys.executable, "-P", "-m", _MODULE, case.name, str(store.raw(case.name))]
    command += ["--quick"] if quick else []
    if NETWORKS.there():
        command = ["unshare", "--net", "--", *command, "--outside", current_id()]
    began = time.monotonic()
    with terminable(), Children(store.folder) as children:
        child = children.start(case.name, command)
        _follow(child, began + case.limit_s, console)
        children.forget(child)
    if child.status != 0:
        raise child.failure(f"failed with status {child.status}")
    try:
        return store.take(case.name, time.monotonic() - began)
    except (OSError, ValueError) as error:
        raise child.failure(f"wrote no result ({error})") from None


def _follow(child: Child, deadline: float, console: Console) -> None:
    """Show a case's output until it ends. Raises ProcessError when its time is over."""
    with LogReader(child) as log, console.status("") as spinner:
        while True:
            lines, status = log.read()
            for line in lines:
                console.print(f"  {line}", markup=False, soft_wrap=True)
            if status is not None:
                return
            spinner.update(f"{child.name}, {deadline - time.monotonic():.0f} s left")
            if time.monotonic() > deadline:
                raise child.failure("took too long")
            time.sleep(POLL_S)
