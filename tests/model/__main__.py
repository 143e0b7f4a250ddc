"""`python tests/model`: search all jobs with all their faults, and the controller; show that the mutants are caught."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

sys.path.extend(str(Path(__file__).resolve().parents[2] / tests) for tests in ("tests", "softswitch/tests"))

from model import controller_plans
from model.controller import explore_controller
from model.hosts import LARGE_SEARCHES, SMALL_SEARCHES, explore_hosts
from model.jobs import JOBS, MUTANTS, Searched
from model.memory import MEMORY_MUTANTS, explore_memory
from model.search import Faults, Report, explore


def _timed(search: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[Any, float]:
    """Return what a search returns, and its seconds."""
    logging.disable(logging.CRITICAL)
    begun = time.monotonic()
    return search(*arguments, **options), time.monotonic() - begun


def _search(searched: Searched, faults: Faults) -> Report:
    return explore(searched.job(faults))


def _text(faults: Faults) -> str:
    return ", ".join(f"{count} {name}" for name, count in faults._asdict().items() if count)


def main() -> int:
    failed, nodes = False, 0
    with ProcessPoolExecutor(2) as pool:
        start = partial(pool.submit, _timed)
        found = [
            (searched, faults, start(_search, searched, faults))
            for searched in (*MUTANTS, *JOBS)
            for faults in (*searched.small, *searched.large)
        ]
        controllers = [(name, start(explore_controller, plan)) for name, plan in controller_plans.LARGE.items()]
        of_hosts = [(searched, start(explore_hosts, **searched)) for searched in (*SMALL_SEARCHES, *LARGE_SEARCHES)]
        for job, faults, future in found:
            mutant = job in MUTANTS
            report, seconds = future.result()
            if not mutant:
                nodes += report.nodes
            wrong = mutant != bool(report.broken)
            failed |= wrong
            parts = f"{report.rank_states} rank states, {report.switch_states} switch states, {report.frames} frames"
            print(f"{job.name}; {_text(faults)}: {report.nodes:,} states ({parts}) in {seconds:.0f} s", flush=True)
            if report.broken:
                print(f"  {'caught' if mutant else 'BROKEN'}: {report.broken}")
                print("".join(f"    {step}\n" for step in report.trace), end="")
            elif mutant:
                print("  NOT CAUGHT")
        for name, searching in controllers:
            searched, seconds = searching.result()
            failed |= bool(searched.broken)
            counts = f"{searched.situations:,} situations in {searched.sequences:,} sequences of events"
            print(f"controller, {name}: {counts} in {seconds:.0f} s", flush=True)
            if searched.broken:
                print(f"  BROKEN: {searched.broken}", *searched.trace, sep="\n    ")
        for sums, over_hosts in of_hosts:
            (states, broken, way), seconds = over_hosts.result()
            failed |= bool(broken)
            print(f"hosts of 2 and 1 ranks, {sums}: {states:,} states in {seconds:.0f} s", flush=True)
            if broken:
                print(f"  BROKEN: {broken}: {way}")
        states, broken, way = explore_memory()
        caught = all(explore_memory(mutant)[1] for mutant in MEMORY_MUTANTS)
        failed |= bool(broken) or not caught
        print(f"one host of 3 ranks: {states:,} states; {broken or 'not broken'}: {way}", flush=True)
    outcome = "FAILED" if failed else "no property broken, every mutant caught"
    print(f"{nodes:,} states of the jobs visited; {outcome}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
