"""Runs one command on every worker host."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

from p4reduce_lab.processes import POLL_S, Child, LogReader
from p4reduce_testbed.testbed import Testbed
from p4reduce_testbed.topology import Host

OnLine = Callable[[int, str], None]
"""Takes (rank, line) for each line a worker writes."""


def fill_in(command: str, host: Host, world_size: int) -> str:
    """Replace {rank}, {host}, {ip} and {world_size} in `command`; other braces stay."""
    for key, value in (
        ("rank", host.rank),
        ("host", host.name),
        ("ip", host.ip),
        ("world_size", world_size),
    ):
        command = command.replace("{" + key + "}", str(value))
    return command


def run_on_all(
    testbed: Testbed,
    name: str,
    command: Callable[[Host], list[str]],
    job_name: str,
    *,
    on_line: OnLine,
    timeout_s: float | None = None,
    stall_s: float | None = None,
) -> None:
    """Run a command on every host until all have ended with status 0.

    Raises ProcessError when one fails (the rest are stopped at the testbed's end), the switch or the controller
    ends, `timeout_s` is over or no worker writes a line for `stall_s`.
    """
    workers = [
        testbed.start_worker(f"{name} {host.name}", host, command(host), job_name) for host in testbed.topology.hosts
    ]
    _follow(testbed, workers, on_line, timeout_s, stall_s)
    for worker in workers:
        testbed.children.forget(worker)


def _follow(
    testbed: Testbed,
    workers: Sequence[Child],
    on_line: OnLine,
    timeout_s: float | None,
    stall_s: float | None,
) -> None:
    began = moved = time.monotonic()
    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context(LogReader(worker)) for worker in workers]
        while True:
            statuses = []
            for rank, log in enumerate(logs):
                lines, status = log.read()
                statuses.append(status)
                for line in lines:
                    moved = time.monotonic()
                    on_line(rank, line)
            for worker, status in zip(workers, statuses, strict=True):
                if status:
                    raise worker.failure(f"failed with status {status}")
            running = [worker for worker, status in zip(workers, statuses, strict=True) if status is None]
            if not running:
                return
            testbed.system.check()
            now = time.monotonic()
            if timeout_s is not None and now - began > timeout_s:
                raise running[0].failure(f"still ran after {timeout_s:g} s")
            if stall_s is not None and now - moved > stall_s:
                raise running[0].failure(f"and the others wrote nothing for {stall_s:g} s")
            time.sleep(POLL_S)
