"""Measure how soon work is back after a program has been killed (docs/reliability.md).

    python tests/system/recovery.py --times 5

Two ranks, as threads or processes of one machine, over the embedded switch. A switch or controller that is killed is
started again at once, and its start counts.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import statistics
import subprocess
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
from rigs.survivors import RANKS, Steps, train
from rigs.system import System, running_system

MEMBER = """
import sys, time, p4reduce
comm = p4reduce.join("ends", rank=int(sys.argv[1]), world_size=2, controller=sys.argv[2])
print("joined", flush=True)
while True:
    try:
        comm.check()
    except p4reduce.CollectiveError:
        print("told", flush=True)
        break
    time.sleep(0.005)
"""


@contextlib.contextmanager
def working(system: System) -> Iterator[Steps]:
    """Ranks that sum without end in the block; every sum is checked."""
    address = system.controller.address("jobs on")
    with JobClient(address) as client:
        client.create_job("train", RANKS, slots=8)
    steps = Steps()
    with ThreadPoolExecutor(RANKS) as pool:
        ranks = [pool.submit(train, address, rank, steps) for rank in range(RANKS)]
        try:
            steps.wait_more(5)
            yield steps
        finally:
            steps.stop()
        for rank in ranks:
            rank.result()
    with JobClient(address) as client:
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


def until_told(system: System, number: signal.Signals) -> float:
    """Seconds from the signal to rank 1 until rank 0 knows."""
    address = system.controller.address("jobs on")
    with JobClient(address) as client:
        client.create_job("ends", RANKS, slots=8)
        members = [
            subprocess.Popen([sys.executable, "-c", MEMBER, str(rank), address], stdout=subprocess.PIPE, text=True)
            for rank in range(RANKS)
        ]
        try:
            lines = [member.stdout for member in members if member.stdout is not None]
            for line in lines:
                assert line.readline() == "joined\n"
            begun_at = time.monotonic()
            members[1].send_signal(number)
            assert lines[0].readline() == "told\n"
            return time.monotonic() - begun_at
        finally:
            for member in members:
                member.kill()
                member.communicate()
            client.remove_job("ends")


def kill_switch(system: System) -> None:
    """SIGKILL the switch and start another."""
    system.kill_switch()
    system.start_switch()


def kill_both(system: System) -> None:
    """SIGKILL switch and controller and start others."""
    system.kill_switch()
    system.controller.end(signal.SIGKILL)
    system.start_switch()
    system.start_controller()


def end_controller(system: System) -> None:
    """SIGKILL the controller."""
    system.controller.end(signal.SIGKILL)


MEASURED: dict[str, Callable[[System], float]] = {
    "SIGKILL of a worker, until the other is told": lambda system: until_told(system, signal.SIGKILL),
    "SIGTERM of a worker, until the other is told": lambda system: until_told(system, signal.SIGTERM),
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
