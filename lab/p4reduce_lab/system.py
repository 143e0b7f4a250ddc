"""A switch and its controller as child processes: started one after the other, each waited for."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import JobServiceError
from p4reduce_lab.addresses import answers, free_address
from p4reduce_lab.processes import P4REDUCE, Child, Children

READY_S = 60.0


@dataclass(frozen=True)
class System:
    """A running switch and controller."""

    controller: str
    """HOST:PORT of the job service."""
    client: JobClient
    switch: Child
    controller_process: Child

    def check(self) -> None:
        """Raise ProcessError if the switch or the controller has ended."""
        self.switch.check_running()
        self.controller_process.check_running()

    @contextmanager
    def job(self, name: str, world_size: int) -> Iterator[str]:
        """Make a job for the block and yield its name. After an error it stays, for diagnosis."""
        self.client.create_job(name, world_size)
        yield name
        self.client.remove_job(name)


@contextmanager
def running_system(children: Children, pipeline: str = "default") -> Iterator[System]:
    """Start the embedded switch and a controller on free ports of the loopback interface.

    `pipeline` is a geometry's name or the folder of a compiled program. They run until `children` ends. Raises
    ProcessError if they do not come up.
    """
    underlay, p4runtime, jobs = free_address(socket.SOCK_DGRAM), free_address(), free_address()
    switch = [*P4REDUCE, "switch", "run", "--listen", underlay, "--p4runtime", p4runtime]
    config = [
        "[switch]",
        f"p4runtime = {toml_text(p4runtime)}",
        f"pipeline = {toml_text(pipeline)}",
        f"udp_port = {underlay.rpartition(':')[2]}",
        "",
        "[controller]",
        f"listen = {toml_text(jobs)}",
        f"state_dir = {toml_text(new_state_dir(children.logs))}",
    ]
    with started_system(children, switch, p4runtime, jobs, config) as system:
        yield system


@contextmanager
def started_system(
    children: Children,
    switch_command: Sequence[str],
    p4runtime: str,
    jobs: str,
    config: Sequence[str],
    *,
    insecure: bool = False,
) -> Iterator[System]:
    """Start a switch and, when it answers at `p4runtime`, a controller; wait until it serves jobs at `jobs`.

    `config` are the lines of the controller's TOML file. `insecure`: `jobs` is beyond loopback, and not served over
    TLS. They run until `children` ends. Raises ProcessError if they do not come up.
    """
    switch = children.start("switch", switch_command)
    switch.wait_ready(lambda: answers(p4runtime), READY_S)
    path = children.logs / "controller.toml"
    path.write_text("\n".join(config) + "\n", encoding="utf-8")
    controller = children.start("controller", [*P4REDUCE, "controller", "run", "--config", str(path)])
    with JobClient(jobs, insecure=insecure) as client:
        controller.wait_ready(lambda: _serves(client), READY_S)
        yield System(jobs, client, switch, controller)


def toml_text(value: object) -> str:
    """Write a value as a TOML string."""
    return json.dumps(str(value), ensure_ascii=False)  # what JSON escapes, TOML escapes alike


def new_state_dir(logs: Path) -> Path:
    """Return the folder in which a new controller beside these logs keeps its state.

    An earlier controller's state is removed: its switch has ended, and its jobs would collide with new ones.
    """
    folder = logs.resolve() / "controller-state"
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def _serves(client: JobClient) -> bool:
    try:
        client.list_jobs()
    except JobServiceError:
        return False
    return True
