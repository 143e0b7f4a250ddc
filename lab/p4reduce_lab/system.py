"""The demo's switch and controller, on free ports of the loopback interface."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import JobServiceError
from p4reduce_lab.processes import P4REDUCE, Child, Children

READY_S = 30.0


class System:
    """A running switch and controller."""

    def __init__(self, controller: str, switch: Child, client: JobClient) -> None:
        self.controller = controller
        """HOST:PORT of the job service."""
        self.switch = switch
        self.client = client


@contextmanager
def running_system(children: Children) -> Iterator[System]:
    """Start a switch and a controller and wait until jobs can be created. ProcessError if they do not come
    up."""
    underlay, p4runtime, jobs = _free_port(socket.SOCK_DGRAM), _free_port(), _free_port()
    switch = children.start(
        "switch",
        [*P4REDUCE, "switch", "run", "--listen", _at(underlay), "--p4runtime", _at(p4runtime)],
    )
    switch.wait_ready(lambda: _answers(p4runtime), READY_S)
    config = children.logs / "controller.toml"
    config.write_text(
        f'[switch]\np4runtime = "{_at(p4runtime)}"\nudp_port = {underlay}\n\n'
        f'[controller]\nlisten = "{_at(jobs)}"\nstate_dir = "{_state(children.logs)}"\n',
        encoding="utf-8",
    )
    controller = children.start("controller", [*P4REDUCE, "controller", "run", "--config", str(config)])
    with JobClient(_at(jobs)) as client:
        controller.wait_ready(lambda: _serves(client), READY_S)
        yield System(_at(jobs), switch, client)


def _state(folder: Path) -> str:
    state = folder.resolve() / "controller-state"
    return str(state).replace("\\", "\\\\").replace('"', '\\"')


def _serves(client: JobClient) -> bool:
    try:
        client.list_jobs()
    except JobServiceError:
        return False
    return True


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True


def _free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _at(port: int) -> str:
    return f"127.0.0.1:{port}"
