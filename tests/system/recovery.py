"""Measure how soon work is back after a program has been killed (docs/reliability.md).

    python tests/system/recovery.py --times 5

Two ranks, threads of one process, over the embedded switch. A switch or controller that is killed is started again at
once, and its start counts.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

if __name__ == "__main__":
    sys.path.extend(str(Path(__file__).resolve().parents[2] / tests) for tests in ("tests", "softswitch/tests"))

from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import ControllerUnreachableError
from rigs.survivors import RANKS, Steps, begin
from rigs.system import System, running_system


@contextlib.contextmanager
def working(system: System) -> Iterator[Steps]:
    """Ranks that sum without end in the block; every sum is checked."""
    steps = Steps()
    with ThreadPoolExecutor(RANKS) as pool:
        ranks = begin(pool, system, steps)
        try:
            steps.wait_more(5)
            yield steps
        finally:
            steps.stop()
        for rank in ranks:
            rank.result()
    with JobClient(system.controller.address("jobs on")) as client:
        client.remove_job("train")


def until_working(
    system: System, kill: Callable[[System], None], *, after: Callable[[System], None] | None = None
) -> float:
    """Seconds from the kill until both ranks have more sums than were under way; then do what is left to do."""
    with working(system) as steps:
        begun_at = time.monotonic()
        kill(system)
        steps.wait_more(2)
        seconds = time.monotonic() - begun_at
        if after is not None:
            after(system)
        with JobClient(system.controller.address("jobs on")) as client:
            while not is_active(client):
                time.sleep(0.05)
    return seconds


def is_active(client: JobClient) -> bool:
    """Whether the ranks have their places, as far as a controller says."""
    try:
        return client.get_job("train").state == "ACTIVE"
    except ControllerUnreachableError:
        return False


def kill_switch(system: System) -> None:
    system.kill_switch()
    system.start_switch()


def kill_both(system: System) -> None:
    system.kill_switch()
    system.controller.end(signal.SIGKILL)
    system.start_switch()
    system.start_controller()


def end_controller(system: System) -> None:
    system.controller.end(signal.SIGKILL)


MEASURED: dict[str, Callable[[System], float]] = {
    "SIGKILL of the switch, until sums are back, rejoin": lambda system: until_working(system, kill_switch),
    "SIGKILL of both, until sums are back, rejoin": lambda system: until_working(system, kill_both),
    "SIGKILL of the controller, until more sums": lambda system: until_working(
        system, end_controller, after=System.start_controller
    ),
}


def main() -> None:
    """Measure each so often, one after the other in turn, and print seconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    seconds: dict[str, list[float]] = {name: [] for name in MEASURED}
    with tempfile.TemporaryDirectory(prefix="p4reduce-recovery-") as folder, running_system(Path(folder)) as system:
        for _ in range(given.times):
            for name, measure in MEASURED.items():
                seconds[name].append(measure(system))
    for name, found in seconds.items():
        print(f"{name}: median {statistics.median(found):.2f} s, {min(found):.2f} to {max(found):.2f} s")


if __name__ == "__main__":
    main()
