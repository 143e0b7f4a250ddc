"""Python scripts in processes that are forked from one that has imported torch.

A new interpreter takes seconds of processor time to import torch with what DDP and FSDP import of it, a forked one
none. Each script runs as `__main__` to the end of its interpreter, with its own arguments, environment and output.

A server is a process that reads a request from its socket, forks, and answers with the child's id and later its status.
"""

from __future__ import annotations

import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from p4reduce_lab.addresses import free_port

PRELOADED = (
    "pytest",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.optim",
    "torch.distributed.tensor.parallel",
    "torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook",
    "torch.distributed.algorithms.join",
    "p4reduce.pytorch.backend.group",
    "p4reduce.pytorch.ddp",
    "p4reduce.join",
    "p4reduce.testing.udp_switch",
    "p4reduce_lab.system",
)
READY_S = 120.0


class Forked:
    """A script in a process of its own."""

    def __init__(self, connection: socket.socket, log: Path) -> None:
        self._answers = connection.makefile("r")
        self._connection = connection
        self.log = log
        """What it prints, errors included."""
        self.pid = int(self._answers.readline())
        self._status: int | None = None

    def wait(self, timeout_s: float) -> int:
        """Return its status, negative if a signal ended it. Raises TimeoutError."""
        if self._status is None:
            self._connection.settimeout(max(timeout_s, 0.001))
            self._status = int(self._answers.readline())
        return self._status

    def close(self) -> None:
        """Kill it if it runs."""
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait(READY_S)
        self._answers.close()
        self._connection.close()

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class ForkServer:
    """Starts scripts; `address` is the path of its socket."""

    def __init__(self, address: Path) -> None:
        self._address = str(address)

    def start(self, log: Path, *command: str, environment: Mapping[str, str], folder: Path | None = None) -> Forked:
        """Run `python *command` with stdout and stderr in `log`, from the folder (default: this process's)."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(READY_S)
        connection.connect(self._address)
        request = {
            "command": command,
            "environment": dict(environment),
            "folder": str(folder or Path.cwd()),
            "log": str(log),
        }
        connection.sendall(json.dumps(request).encode() + b"\n")
        return Forked(connection, log)

    def launch(
        self, logs: Path, ranks: int, *command: str, environment: Mapping[str, str], timeout_s: float, status: int = 0
    ) -> list[str]:
        """Run `python *command` as each rank, with the variables that torchrun sets; return what each rank printed.

        AssertionError where a rank ends with another status, TimeoutError where one does not end.
        """
        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
        deadline = time.monotonic() + timeout_s
        with ExitStack() as stack:
            started = []
            for rank in range(ranks):
                variables = {key: str(value) for key, value in {**group, "RANK": rank, "LOCAL_RANK": rank}.items()}
                log = logs / f"rank-{rank}.log"
                forked = self.start(log, *command, environment={**environment, **variables})
                started.append(stack.enter_context(forked))
            for each in started:
                ended = each.wait(deadline - time.monotonic())
                assert ended == status, f"status {ended}: {each.log.read_text()}"
        return [each.log.read_text() for each in started]


@contextmanager
def fork_server(folder: Path) -> Iterator[ForkServer]:
    """Start a server, with its socket in the folder; it ends with the block or with this process."""
    address = folder / "fork_server"
    command = [sys.executable, __file__, str(address)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # read when torch is imported
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == b"ready\n", "the fork server did not start"
        try:
            yield ForkServer(address)
        finally:
            process.stdin.close()
            process.wait(READY_S)


def serve(address: str) -> dict[str, Any] | None:
    """Fork a child for each request until stdin ends; return the request in the child, None in the server."""
    for name in PRELOADED:
        __import__(name)
    children: dict[int, tuple[int, socket.socket]] = {}
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    events = selectors.DefaultSelector()
    events.register(listener, selectors.EVENT_READ)
    events.register(sys.stdin, selectors.EVENT_READ)
    print("ready", flush=True)
    while True:
        for key, _ in events.select():
            if key.fileobj is sys.stdin:
                for pid, _ in children.values():
                    os.kill(pid, signal.SIGKILL)
                return None
            if key.fileobj is not listener:
                pid, connection = children.pop(key.fd)
                events.unregister(key.fd)
                os.close(key.fd)
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                connection.sendall(b"%d\n" % status)
                connection.close()
                continue
            connection, _ = listener.accept()
            request = json.loads(connection.makefile().readline())
            pid = os.fork()
            if pid == 0:
                for descriptor, (_, other) in children.items():
                    os.close(descriptor)
                    other.close()
                for file in (events, listener, connection):
                    file.close()
                return request
            connection.sendall(b"%d\n" % pid)
            descriptor = os.pidfd_open(pid)
            children[descriptor] = (pid, connection)
            events.register(descriptor, selectors.EVENT_READ)


def become(request: dict[str, Any]) -> None:
    """Run the script of a request as this interpreter's."""
    inputs = os.open(os.devnull, os.O_RDONLY)
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for descriptor, number in ((inputs, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, number)
    os.close(inputs)
    os.close(log)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    import torch

    torch.distributed.set_debug_level_from_env()
    script = request["command"][0]
    sys.argv = list(request["command"])
    sys.path[:1] = [str(Path(script).parent), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    request = serve(sys.argv[1])
    if request is not None:
        become(request)
